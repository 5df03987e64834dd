"""The clients for asyncio. `kops.Producer` is the same producer for programs with threads.

In: settings under Kafka's names, records. Out: awaitables that return the records' offsets, or errors with Kafka's names.
"""

from kops.client.producer.faces.asynchronous import Producer, RecordDelivery

__all__ = ["Producer", "RecordDelivery"]
