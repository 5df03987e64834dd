"""The log of a Raft node as an interface, its control records, and the batches that wait to be appended.

In: records. Out: batches. The broker implements the interface over files, the simulation in memory.
"""
