"""The wire of Apache Kafka 4.3: primitives, messages, framing, error codes. Pure: bytes in, values out; no socket, no clock.

Sources: the protocol guide, KIP-482 (flexible versions) and the message descriptors inside Kafka's jars.
"""
