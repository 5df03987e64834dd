"""Kafka's programs and tools run against any cluster: the steps, and the text that they print with ids and times masked."""
