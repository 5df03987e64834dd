"""What a leader checks of the batches it is sent, and how it assigns their offsets.

In: the bytes of a request. Out: the bytes to append, or Kafka's error.
"""
