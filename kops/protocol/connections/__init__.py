"""A connection without its socket, for both ends.

In: bytes. Out: requests or responses, in order. Framing, version negotiation and back-off are here.
"""
