"""Kafka's programs and tools run against any cluster: steps, and the text they print with ids and times masked."""
