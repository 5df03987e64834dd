"""The persister: what group coordinators and leaders of share partitions ask of the share coordinator, wherever it is.

In: requests about share partitions. Out: requests to brokers, promises of responses.
"""
