"""The node's event loop, its listeners, its connections and the connections to its peers.

In: sockets and timers. Out: requests to handlers, responses to sockets. Nothing here knows what a request means.
"""
