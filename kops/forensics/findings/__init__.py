"""The findings of an inspection and the registry of their codes.

In: what a check saw. Out: one shape of finding for `verify`, `index check`, `repair` and Spark.
"""
