"""Follows log directories that brokers are writing to: how far they may be read, which offsets come next, and which were lost.

`positions` and `planning` are pure. `look` reads the directories. Needs no Spark.
"""
