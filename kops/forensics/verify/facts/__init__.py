"""The facts that one pass over a segment collects.

In: the bytes of a log or an index. Out: facts that can be pickled, sent between processes and merged. No verdict is reached here.
"""
