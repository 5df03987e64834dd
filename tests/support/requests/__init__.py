"""Requests and records to send: every API and version, random ones, hostile ones; and the answers of real Kafka."""
