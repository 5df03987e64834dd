"""Logs for tests: generated, damaged, crashed, and compared with those of Kafka."""
