"""`kops scan …`: commands of `kops log` for a whole cluster, run on Spark."""
