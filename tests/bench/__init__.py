"""Benchmarks of kops and Apache Kafka's own tools on the same files, one after the other in one run (`make bench`)."""
