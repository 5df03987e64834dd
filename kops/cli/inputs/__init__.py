"""The input of several commands: a cluster and how to reach it, files named by options, lines of text.

In: values of options and arguments. Out: a client, settings, an iterator over lines.
"""
