"""Administration of groups and transactions: coordinators, lists, descriptions, offsets, resets, hanging transactions.

In: a client, ids, changes. Out: descriptions, plans, an outcome for each item.
"""
