"""Results, which every part of the controller uses.

In: records and responses to keep together. Out: a result.
"""
