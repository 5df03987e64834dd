"""Logs that are compared with a second one: one of Kafka, a plain model, or the same log after a crash."""
