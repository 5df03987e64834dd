"""Shared code of the tests: the corpus of real Kafka data (`corpus`) and real Kafka itself (`oracle`)."""
