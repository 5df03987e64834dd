"""What a broker asks of the active controller.

In: needs of the broker (register, heartbeat, change an ISR, create a topic, forward a request). Out: requests on one channel, and
their answers.
"""
