"""The share consumer without I/O: share sessions, fetched records, acknowledgements, membership.

In: calls of the program and answers of brokers, each with the time. Out: requests, records, outcomes of acknowledgements.
"""
