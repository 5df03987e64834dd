"""How a command prints: formats, tables, progress, and where the data goes.

In: rows or documents. Out: text on stdout or in the file of `-o`, words on stderr.
"""
