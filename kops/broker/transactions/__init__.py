"""The transaction coordinator of a broker: its log, its requests to other brokers, its timers, and the writing of markers.

In: requests of producers and brokers, changed leaderships. Out: appends, requests to brokers, answers.
"""
