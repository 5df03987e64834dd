"""Handlers of the APIs by which members of share groups fetch and acknowledge records.

In: requests. Out: responses, at once or when there are records and what was acknowledged is persisted.
"""
