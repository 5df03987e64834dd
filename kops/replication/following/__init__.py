"""The follower's side: fetchers as state machines.

In: the partitions to follow, and responses of leaders. Out: the next request, and calls to the log.
"""
