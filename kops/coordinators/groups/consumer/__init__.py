"""Consumer groups (KIP-848): the broker assigns, members reconcile step by step; also members that speak the classic protocol.

In: heartbeats, classic requests, records to replay, changes of metadata. Out: responses, records and timers.
"""
