"""The drivers of the consumer's core: a thread of the program with a helper thread, or asyncio.

In: a program's settings and calls. Out: records, outcomes, calls of listeners and callbacks.
"""
