"""All logs of one broker, over its log directories.

In: settings and log directories. Out: open logs. Deletion, retention and checkpoints are tasks that the loop of the owner runs.
"""
