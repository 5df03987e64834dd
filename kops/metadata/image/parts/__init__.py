"""The parts of an image, one module each.

In: records. Out: a new part, which shares unchanged data with the old one.
"""
