"""The share consumer for threads and for asyncio: the core with its connections.

In: settings and calls of a program. Out: records, waiting done.
"""
