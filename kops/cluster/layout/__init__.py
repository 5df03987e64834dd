"""The directory of a cluster, the settings of its nodes, and their ports.

In: options of the user. Out: files that Apache Kafka itself can start from.
"""
