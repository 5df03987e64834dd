"""The members of the quorum: replicas, voter sets, endpoints, and the settings of the quorum.

In: control records and settings. Out: values that roles and nodes compare.
"""
