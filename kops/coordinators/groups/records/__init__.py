"""The records of groups and offsets.

In: ids and values. Out: records as Kafka writes them, with the version that Kafka chooses.
"""
