"""Replication of partitions as pure cores: events and the time come in, decisions and messages go out (Kafka's kafka.cluster, the fetchers
and the purgatories of kafka.server)."""
