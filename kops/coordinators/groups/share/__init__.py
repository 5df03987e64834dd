"""Share groups in the group coordinator (KIP-932): members, assignments, and the partitions with initialized share state.

In: heartbeats, requests about offsets, replayed records. Out: records, responses, and requests to the share coordinator.
"""
