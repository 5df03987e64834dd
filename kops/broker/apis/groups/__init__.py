"""Handlers of the APIs of groups and of what all coordinators have in common.

In: requests. Out: responses.
"""
