"""Results: what every part of the controller stands on.

In: records and responses to keep together. Out: a result.
"""
