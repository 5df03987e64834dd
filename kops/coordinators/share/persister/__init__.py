"""The persister: sends the requests of group coordinators and share partitions to the share coordinator, on whichever broker it is.

In: requests about share partitions. Out: requests to brokers, promises of responses.
"""
