"""The loop of a node: it waits for sockets, pipes and timers, and calls what they wait for, in one thread.

In: callbacks. Out: their calls, in order.
"""
