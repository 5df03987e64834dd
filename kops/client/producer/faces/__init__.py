"""What drives the producer's core: a thread, asyncio, or the commands on one thread.

In: a program's settings and records. Out: futures and callbacks, each exactly once.
"""
