"""Consumer groups (KIP-848): the broker assigns partitions, and members reconcile step by step. Members may use the classic protocol.

In: heartbeats, classic requests, records to replay, changes of metadata. Out: responses, records and timers.
"""
