"""Groups: the shard of the group coordinator, with classic, consumer, share and streams groups and committed offsets.

In: requests, replayed records, the time, expired timers. Out: records, and responses, some of which are sent later.
"""
