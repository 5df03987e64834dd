"""Who is in the quorum: replicas, voter sets and their history, and the quorum's settings."""
