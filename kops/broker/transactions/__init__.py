"""The transaction coordinator of a broker: its log, its requests to other brokers, its timers, and the markers that it is sent.

In: requests of producers and brokers, changed leaderships. Out: appends, requests to brokers, answers.
"""
