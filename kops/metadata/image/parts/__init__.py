"""The parts of a metadata image, one module each, over maps that share what did not change.

In: records. Out: a new part.
"""
