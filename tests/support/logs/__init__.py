"""Logs to test with: made, damaged, crashed, and beside those of Kafka."""
