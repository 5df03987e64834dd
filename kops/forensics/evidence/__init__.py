"""Evidence: log directories collected for an examination, with hashes that prove later that nothing was changed.

In: directories, of which nothing is written, locked or followed. Out: a case, which is a directory with a manifest, hashes, the findings
and, unless it is by reference, a copy; and a report of it for people.
"""
