"""Share fetches: which partitions of a request can be acquired, when there is enough data, and which records the member gets.

In: share partitions, reads of the log. Out: results by partition.
"""
