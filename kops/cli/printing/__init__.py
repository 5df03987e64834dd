"""The output of commands: formats, tables, progress, and the streams they go to.

In: rows or documents. Out: data on stdout or in the file of `-o`, messages on stderr.
"""
