"""Produces records of logs into a running cluster, each exactly once, even if the run is interrupted and continued.

In: sources of records with their offsets, a client. Out: batches to the leaders, a state file, records that the cluster rejected.
"""
