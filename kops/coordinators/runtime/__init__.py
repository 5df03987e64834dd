"""Shared by all coordinators: records, results, timers, and the runtime that loads, runs and unloads shards.

In: requests as operations on a shard, appended and committed offsets. Out: batches to append, and promises that complete when the batches
are committed.
"""
