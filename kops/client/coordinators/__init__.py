"""Administration of groups and transactions: find coordinators, list, describe, offsets, resets, hanging transactions.

In: a client, ids, changes. Out: descriptions, plans, an outcome for each item.
"""
