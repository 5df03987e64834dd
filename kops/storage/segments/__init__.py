"""A segment: its log file with its indexes, its recovery and its splitting, and the cache of leader epochs.

In: batches to append, offsets to look up. Out: positions, reads and rebuilt indexes.
"""
