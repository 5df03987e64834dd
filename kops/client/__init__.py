"""What talks to a cluster as Kafka's Java clients do, against kops and against Apache Kafka: connections, metadata, admin, produce, consume."""
