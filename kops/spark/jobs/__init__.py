"""The questions of `kops scan`: those of `kops log`, with the reading spread over the tasks of Spark.

In: a session and the paths of log directories. Out: a DataFrame, or the report that `kops log` has. The driver lists and plans, tasks read.
"""
