"""Log directories that brokers are writing to: how far they may be read, which offsets come next, and what was lost.

`positions` and `planning` are pure. `look` reads the directories. Needs no Spark.
"""
