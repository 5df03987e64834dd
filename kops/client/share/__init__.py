"""The share consumer: several consumers read the same partitions, and acknowledge each record (KIP-932).

In: settings under Kafka's names, topics, acknowledgements. Out: records with their delivery counts, outcomes of acknowledgements.
"""
