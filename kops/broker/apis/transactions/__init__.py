"""Handlers of the APIs of transactions, for producers, for coordinators that write markers, and for administrators.

In: requests. Out: responses.
"""
