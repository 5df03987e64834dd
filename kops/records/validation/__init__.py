"""Checks the batches that a leader receives, and assigns their offsets.

In: the bytes of a request. Out: the bytes to append, or Kafka's error.
"""
