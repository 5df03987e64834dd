"""The commands `kops log diff` and `heal`, one module each: what the replicas of a partition have and lack."""
