"""A client of a cluster, of kops or of Apache Kafka: metadata, administration, produce, consume.

In: bootstrap servers and settings. Out: answers and records, or an error with Kafka's name. It behaves as Kafka's Java clients do.
"""
