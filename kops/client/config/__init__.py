"""The settings of Kafka's clients: producer, consumer and admin client.

In: a mapping of Kafka's names to texts or Python values. Out: checked values with the defaults of the Java clients 4.3.0, or a UsageError
with the name, the value and the allowed values.
"""
