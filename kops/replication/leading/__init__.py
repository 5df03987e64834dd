"""The leader's side: a partition, its in-sync replicas, reads, and fetch sessions.

In: appends, fetches and the time. Out: results, and requests to change the in-sync replicas.
"""
