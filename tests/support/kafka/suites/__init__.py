"""Kafka's own integration tests, run against nodes of kops: the classes in `java` stand before Kafka's test clusters on the class path."""
