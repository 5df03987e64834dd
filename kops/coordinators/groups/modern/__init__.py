"""Shared by consumer, share and streams groups: members with subscriptions, epochs, a target assignment, and a hash of metadata.

In: members and resolved topics. Out: counts of subscriptions, hashes, target assignments.
"""
