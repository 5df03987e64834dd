"""The admin client for programs with threads, and for asyncio.

In: settings and calls of a program. Out: results, in the caller's thread or as awaitables. Both run the same operations.
"""
