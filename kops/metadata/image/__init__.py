"""The cluster's metadata as immutable images, what records change in them, and the way back to records (Kafka org.apache.kafka.image)."""
