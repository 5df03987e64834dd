"""Logs that are driven beside a second one: Kafka's, a plain model, or the same log after a crash."""
