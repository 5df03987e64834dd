"""The metrics of a client, by Kafka's names, and their push to brokers that ask for them (KIP-714).

In: measurements with their times. Out: values by name, requests with metrics in OpenTelemetry's format. Pure: no clock, no socket.
"""
