"""The parts of an image, one module each.

In: records. Out: a new part. What did not change is shared with the old part.
"""
