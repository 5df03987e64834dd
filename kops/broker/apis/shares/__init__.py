"""Handlers of the APIs with which members of share groups fetch and acknowledge records.

In: requests. Out: responses, at once or when there are records and acknowledgements are persisted.
"""
