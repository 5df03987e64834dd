"""The Raft node in its process: the metadata log on disk, elections, snapshots, and images made of committed records.

In: the node's settings and directories. Out: committed metadata for the broker and the controller.
"""
