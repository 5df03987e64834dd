"""Starts, runs and stops a node, inside a program or as a process.

In: a configuration. Out: a running node, its state and its counters.
"""
