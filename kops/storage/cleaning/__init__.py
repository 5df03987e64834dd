"""Log compaction.

In: logs and a limit on memory. Out: segments that keep the latest record of each key, and checkpoints that record how far a log is clean.
"""
