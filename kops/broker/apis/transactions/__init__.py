"""Handlers of the APIs of transactions: producers, coordinators that write markers, and who asks for transactions.

In: requests. Out: responses.
"""
