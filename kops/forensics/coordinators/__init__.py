"""`kops log offsets`, `txnstate` and `txns`: the state of the coordinators and the transactions in the partitions, from files.

In: partition directories. Out: offsets of groups, transactional ids, open and hanging transactions. Records that cannot be decoded are
included raw.
"""
