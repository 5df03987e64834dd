"""The wire format of Apache Kafka 4.3: messages, framing, error codes.

In: bytes. Out: values, and back. The package uses no socket and no clock. Sources: the protocol guide, KIP-482 (flexible versions) and the
message descriptors inside Kafka's jars.
"""
