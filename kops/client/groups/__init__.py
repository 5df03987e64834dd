"""Members of consumer groups: the classic protocol as a core without a socket, Kafka's assignors, committed offsets, a consumer.

In: the names of a group and its topics, a client, the time.
Out: the partitions that the group assigns to this member, their records, commits.
"""
