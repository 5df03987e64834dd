"""What a leader checks of a batch that it is sent, and how it assigns the offsets.

In: the bytes of a request. Out: the bytes to append, or Kafka's error.
"""
