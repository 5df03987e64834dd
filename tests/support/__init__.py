"""What tests share: the corpus of real Kafka data (`corpus`), real Kafka itself (`oracle`)."""
