"""Committed offsets of groups, and offsets of open transactions.

In: commits, fetches and deletions, replayed offsets, ends of transactions. Out: offset records and tombstones, and offsets.
"""
