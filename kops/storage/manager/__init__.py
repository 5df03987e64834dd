"""All logs of one broker, across its log directories.

In: settings and log directories. Out: open logs. Deletion, retention and checkpoints are tasks that the owner's loop runs.
"""
