"""The share partitions that a broker leads: their sessions, waiting fetches, acknowledgements, and their end.

In: fetches and acknowledgements of members, closed connections, changed leaderships. Out: results by partition, reads of logs.
"""
