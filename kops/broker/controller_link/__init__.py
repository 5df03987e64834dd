"""A broker's requests to the active controller.

In: calls of the broker's parts (register, change an ISR, create a topic, forward a request). Out: requests over one channel, and their
answers. The channel finds the controller again when it moves.
"""
