"""A connection without its socket, for both ends.

In: bytes. Out: requests or responses, in order. This room also contains framing, version negotiation and back-off.
"""
