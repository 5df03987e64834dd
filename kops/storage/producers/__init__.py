"""Producers and transactions of one partition.

In: batches. Out: the state of each producer id, the checks an append must pass, and snapshots.
"""
