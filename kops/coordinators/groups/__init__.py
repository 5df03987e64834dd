"""Groups: the shard of the group coordinator, with classic, consumer, share and streams groups and committed offsets.

In: requests, replayed records, the time, timers that have run out. Out: records, responses, some of them held back.
"""
