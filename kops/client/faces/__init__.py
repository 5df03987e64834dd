"""What the faces of all clients share: waking a thread or an event loop, the push of metrics, and calls of a program's code.

In: a client's connections and settings. Out: turns at the right time, requests with metrics, and errors of programs in the log.
"""
