"""Coordinators of groups, transactions and share state, as pure cores.

In: requests, replayed records, the time. Out: records to append, responses to hold back until they are committed, timers. Replay alone
changes state, so a live coordinator, a hand-over and the offline decoders run the same code.
"""
