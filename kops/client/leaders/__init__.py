"""Requests of commands to the leaders of partitions: offsets of logs, and the deletion of their beginning.

In: a client, partitions with what is wanted of each. Out: the value or the error of each partition.
"""
