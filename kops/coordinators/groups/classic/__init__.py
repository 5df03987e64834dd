"""Classic groups: members that join, sync, heartbeat and leave, and a leader among them that assigns the partitions.

In: requests, replayed group metadata, expired timers. Out: responses, most of which are sent later, and group metadata records.
"""
