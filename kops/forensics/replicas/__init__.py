"""Compares replicas of a partition by offset: where they differ, why, and which offsets only one has.

In: directories of a partition. Out: a `PartitionDiff` with findings. Nothing is written.
"""
