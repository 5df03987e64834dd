"""The result of a request, which every part of the controller uses.

In: records and a response. Out: a result.
"""
