"""Kafka's coordinators in the oracle's JVM, driven together with kops's, with the same requests and clock."""
