"""Kafka's coordinators in the oracle's JVM. They are driven together with those of kops, with the same requests and clock."""
