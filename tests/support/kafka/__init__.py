"""Real Apache Kafka for the tests: its classes in one JVM (the oracle), its brokers and its tools."""
