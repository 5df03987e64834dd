"""`kops log meta`: the metadata log `__cluster_metadata` and its snapshots as a tree, compared and checked.

In: a log directory, the directory of the metadata log, or one snapshot. Out: images as trees of nodes, differences, findings.
"""
