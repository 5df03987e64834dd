"""The event loop of a node, its listeners, and its connections with clients and other nodes.

In: sockets and timers. Out: requests for handlers, responses on sockets. Nothing here knows what a request means.
"""
