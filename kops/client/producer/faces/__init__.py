"""The drivers of the producer's core: a thread, asyncio, or a command with one thread.

In: a program's settings and records. Out: futures and callbacks, each exactly once.
"""
