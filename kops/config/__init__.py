"""Kafka's settings: definitions with names, types and defaults, and Java's .properties."""
