"""The supervisor of a cluster and its broker processes.

In: commands as lines of JSON on a Unix socket. Out: processes that are started, signalled and watched.
"""
