"""The Raft node itself.

In: requests, responses and the time. Out: actions, which the caller carries out in order.
"""
