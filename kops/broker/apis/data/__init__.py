"""The APIs that read and write partitions: Produce, Fetch, ListOffsets, DeleteRecords and others.

In: one request. Out: its response, from the replicas of this broker.
"""
