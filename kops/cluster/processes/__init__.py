"""The supervisor of a cluster and its broker processes.

In: lines of JSON on a Unix socket. Out: processes started, signalled and watched.
"""
