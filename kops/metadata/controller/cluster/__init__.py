"""Brokers, features, settings and producer ids as the controller decides about them.

In: a request and the state as replayed. Out: records and a response.
"""
