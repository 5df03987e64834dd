"""The small files of a log directory as values, and the names of files.

In: bytes. Out: values, and back. Nothing here knows a log or opens a file.
"""
