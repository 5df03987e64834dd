"""The controller's decisions about brokers, features, settings and producer ids.

In: a request and the replayed state. Out: records and a response.
"""
