"""Streams groups of the group coordinator (KIP-1071): members of a Kafka Streams application, its topology, and the assignment of tasks.

In: heartbeats, replayed records. Out: records, responses, and the internal topics that the application needs.
"""
