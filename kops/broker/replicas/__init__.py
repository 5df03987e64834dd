"""The replicas of one broker: appends, reads, fetchers, and moves between log directories.

In: requests and changes of the metadata. Out: answers, at once or when the operation no longer has to wait.
"""
