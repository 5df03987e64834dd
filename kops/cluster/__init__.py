"""Clusters on this machine: nodes as processes under a supervisor, or all in one process.

In: a number of nodes and settings. Out: a running cluster and its bootstrap address. `kops cluster` uses processes; `kops.Cluster` uses the
calling process.
"""
