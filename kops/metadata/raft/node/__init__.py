"""The Raft node itself.

In: requests, responses and the time. Out: actions, to be carried out in their order.
"""
