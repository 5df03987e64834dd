"""The controller's decisions about topics and partitions: creation, ISR changes, elections, reassignments.

In: a request or an event, and the replayed state. Out: records and a response.
"""
