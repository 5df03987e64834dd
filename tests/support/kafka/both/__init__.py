"""One program of Python for Kafka's clients and for those of kops: what it sees must be the same."""
