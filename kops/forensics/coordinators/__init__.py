"""`kops log offsets`, `txnstate` and `txns`: the state of the coordinators and the transactions in the partitions, from files.

In: partition directories. Out: positions of groups, transactional ids, open and hanging transactions; what can't be decoded is in them raw.
"""
