"""The settings of a node as a whole: parsed, checked together, changed at run time, described.

In: properties. Out: a `BrokerConfig` that has passed Kafka's checks.
"""
