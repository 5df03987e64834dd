"""The share coordinator of a broker, and the persister with which the broker uses the share coordinators of all brokers.

In: requests about the state of share partitions, elections, new metadata. Out: appends to `__share_group_state`, requests to brokers.
"""
