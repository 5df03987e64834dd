"""A node as one loop: sockets, timers and files around the pure cores.

In: a `server.properties`. Out: a running broker, controller or both. `kops.broker.life` starts it.
"""
