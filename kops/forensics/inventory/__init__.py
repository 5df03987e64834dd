"""The files below the paths that a user gives, before anything is decoded.

In: paths and an interface to files. Out: a typed tree of log directories, partitions, segments and other files, and the listing of
`kops log ls`.
"""
