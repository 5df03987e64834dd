"""The directory of a cluster, the settings of its nodes and their ports.

In: what the user asked for. Out: files that Apache Kafka itself can start from.
"""
