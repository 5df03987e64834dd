"""Benchmarks of running nodes of kops and of Apache Kafka."""
