"""Kafka's coordinators in the oracle's JVM, driven beside kops's with the same requests and clock."""
