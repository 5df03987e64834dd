"""Several replicas of a partition, compared by offset: where they differ, why, and what each has alone.

Comes in: directories of a partition. Goes out: a `PartitionDiff` with findings. It knows batches and checkpoints, and writes nothing.
"""
