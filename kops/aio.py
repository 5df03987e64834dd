"""The clients for asyncio. `kops.Producer`, `kops.Consumer`, `kops.ShareConsumer` and `kops.Admin` are the same for programs with threads.

In: settings under Kafka's names, records, requests. Out: awaitables that return what the brokers answer, or errors with Kafka's names. Each
name is loaded on first use, so that a program that only sends records does not import the admin client.
"""

from kops.late import late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.client.admin.faces.asynchronous import Admin
    from kops.client.consumer.faces.asynchronous import Consumer
    from kops.client.producer.faces.asynchronous import Producer, RecordDelivery
    from kops.client.share.faces.asynchronous import ShareConsumer

__all__ = ["Admin", "Consumer", "Producer", "RecordDelivery", "ShareConsumer"]

_MODULES = {
    "Admin": "kops.client.admin.faces.asynchronous",
    "Consumer": "kops.client.consumer.faces.asynchronous",
    "Producer": "kops.client.producer.faces.asynchronous",
    "RecordDelivery": "kops.client.producer.faces.asynchronous",
    "ShareConsumer": "kops.client.share.faces.asynchronous",
}


if not TYPE_CHECKING:  # a type checker sees the imports above
    __getattr__ = late(globals(), _MODULES)
