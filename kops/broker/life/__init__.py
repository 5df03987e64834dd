"""The life of a node: start, serving, stop, as a part of a program or as a process.

In: a configuration. Out: a running node, its state and its counters.
"""
