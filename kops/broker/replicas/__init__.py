"""The replicas of one broker: appends, reads, fetchers, moves between log directories.

In: requests and changes of the metadata. Out: answers, at once or when what they wait for has happened.
"""
