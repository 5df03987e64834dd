"""Results and state that can go back to an earlier offset: what every part of the controller stands on.

In: records and responses to keep together, and the offsets of snapshots of the state. Out: a result, or the state as it was.
"""
