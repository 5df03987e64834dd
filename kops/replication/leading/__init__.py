"""The leader's side: a partition, its in-sync replicas, what is read of it, and fetch sessions.

In: appends, fetches and the time. Out: results, and requests to change the in-sync replicas.
"""
