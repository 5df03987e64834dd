"""Brokers, features, settings and producer ids, as the controller decides about them.

In: a request and the replayed state. Out: records and a response.
"""
