"""`spark.read.format("kafkalog")`: rows of segments, batches and records, and the state of coordinators and of the metadata.

In: paths of log directories, and options. Out: Arrow record batches, made by Spark's tasks. Only `data_source` needs Spark.
"""
