"""The commands `kops log diff` and `heal`, one module each: compare the replicas of a partition, and repair one from the others."""
