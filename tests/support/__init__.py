"""Shared code of the tests: the corpus of real Kafka data (`corpus`), real Kafka itself (`oracle`)."""
