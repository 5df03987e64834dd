"""The log under a Raft node as an interface, its control records, and the batches on their way into it.

In: records. Out: batches. The broker implements the interface over files, the simulation in memory.
"""
