"""Real Apache Kafka for the tests: its classes in one JVM (the oracle), its brokers, its tools."""
