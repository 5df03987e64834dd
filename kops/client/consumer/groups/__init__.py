"""The consumer as a member of a group: the coordinator, commits, and a membership, without I/O.

In: subscriptions, offsets, the time, answers of the coordinator. Out: requests, assignments, calls of the program's rebalance listener.
"""
