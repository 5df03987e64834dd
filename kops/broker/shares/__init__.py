"""The share partitions that a broker leads: their sessions, fetches that wait, acknowledgements, and what ends them.

In: fetches and acknowledgements of members, closed connections, changed leaderships. Out: results by partition, reads of logs.
"""
