"""The Raft node itself.

In: requests, responses and the time. Out: actions, in the order in which they must be carried out.
"""
