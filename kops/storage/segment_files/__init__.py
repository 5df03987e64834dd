"""The files of a segment: the log file as a broker walks it, and the indexes as values and as open files.

In: bytes and files. Out: batches, entries and positions. No module here knows a whole segment.
"""
