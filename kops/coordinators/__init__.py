"""Coordinators of groups, transactions and share state, as pure cores.

In: requests, replayed records, the time. Out: records to append, responses that wait until the records are committed, timers. Only replay
changes state, so a live coordinator, the loading of a new leader and the offline decoders run the same code.
"""
