"""The small files of a log directory as values, and the names of files.

In: bytes. Out: values, and back. No module here knows about logs or opens a file.
"""
