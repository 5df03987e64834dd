"""What talks to a cluster as Kafka's Java clients do, be it of kops or of Apache Kafka: metadata, admin calls, produce, consume."""
