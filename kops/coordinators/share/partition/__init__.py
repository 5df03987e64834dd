"""One share partition on its leader: which records are in flight, which members have acquired them, and how often they were delivered.

In: fetched batches, acknowledgements, expired timers, answers of the persister. Out: acquired records, state to persist.
"""
