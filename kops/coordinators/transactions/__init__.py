"""The transaction coordinator: the state of transactional ids, their log, markers, and the verification of producers.

In: requests, completed appends, answers of brokers, the time. Out: batches to append, requests to brokers, results.
"""
