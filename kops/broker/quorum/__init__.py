"""The Raft node in its process: the metadata log on disk, elections, snapshots, and images of the committed metadata.

In: the node's settings and directories. Out: committed metadata for the broker and the controller.
"""
