"""Handlers of the APIs of groups, and of APIs shared by all coordinators.

In: requests. Out: responses.
"""
