"""The directory of a cluster, the settings of its nodes, and their ports.

In: the user's options. Out: files from which Apache Kafka itself can start.
"""
