"""The scanners as Spark DataFrames; the only place that imports pyspark."""
