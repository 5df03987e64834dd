"""Share groups of the group coordinator (KIP-932): members, assignments, and whose share state is initialized.

In: heartbeats, requests about offsets, replayed records. Out: records, responses, and what to ask of the share coordinator.
"""
