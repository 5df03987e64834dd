"""Classic groups: members that join, sync, heartbeat and leave, and a leader among them that assigns the partitions.

In: requests, replayed group metadata, timers that have run out. Out: responses, most of them held back, and group metadata records.
"""
