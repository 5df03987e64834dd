"""Reading of compressed record sets in bounded pieces, so that the size of what comes out bounds no memory.

In: the compressed bytes of a batch. Out: pieces of what they hold, or windows of whole records.
"""
