"""The topology of a Streams application and the topics that it reads, writes and needs.

In: a topology from a request or a record, and the cluster's topics. Out: numbers of tasks, internal topics to create, or a problem.
"""
