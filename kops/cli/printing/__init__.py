"""How a command prints: formats, tables, progress, and where the text goes.

In: rows or documents. Out: data on stdout or in the file of `-o`, messages on stderr.
"""
