"""One share partition at its leader: which records are in flight, who has acquired them, and how often they were delivered.

In: fetched batches, acknowledgements, timers that ran out, answers of the persister. Out: acquired records, state to persist.
"""
