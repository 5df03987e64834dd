"""`kops scan …`: the questions of `kops log` about a whole cluster, answered on Spark."""
