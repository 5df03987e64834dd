"""Topics and partitions, as the controller decides about them: creation, ISR changes, elections, reassignments.

In: a request or an event, and the replayed state. Out: records and a response.
"""
