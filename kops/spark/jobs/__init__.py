"""The jobs of `kops scan`: the work of `kops log`, with the reading spread over Spark's tasks.

In: a session and the paths of log directories. Out: a DataFrame, or the report of `kops log`. The driver lists and plans, tasks read.
"""
