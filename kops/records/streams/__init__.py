"""Reads compressed record sets in bounded pieces, so that memory does not grow with the decompressed size.

In: the compressed bytes of a batch. Out: pieces of the decompressed bytes, or fields and messages read from them.
"""
