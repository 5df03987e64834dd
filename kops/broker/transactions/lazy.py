"""Creates the transaction coordinator when it is first needed, so that a node without transactions starts no slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.config.values.java_hash import partition_of

if TYPE_CHECKING:
    from kops.broker.transactions.service import TransactionService
    from kops.broker.transactions.surroundings import Surroundings
    from kops.metadata.image.parts.topics import TopicsDelta

_TOPIC = "__transaction_state"
_PARTITIONS_KEY = "transaction.state.log.num.partitions"


class Transactions:
    """The coordinator of a broker, created by the first call of `service`. `known` is it, or None before."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.known: TransactionService | None = None
        self._partition_count = 0

    def startup(self) -> None:
        """Start. The number of partitions is that of the topic or, before it exists, that of the settings. It does not change later."""
        count = self._around.cache.partition_count(_TOPIC)
        self._partition_count = self._around.config()[_PARTITIONS_KEY] if count is None else count

    def partition_for(self, transactional_id: str) -> int:
        """Return the partition of the transaction log of an id."""
        return partition_of(transactional_id, self._partition_count)

    @property
    def service(self) -> TransactionService:
        """The coordinator."""
        if self.known is None:
            from kops.broker.transactions.service import TransactionService

            self.known = TransactionService(self._around, self._partition_count)
        return self.known

    def apply(self, delta: TopicsDelta) -> None:
        """Handle changed topics: see `TransactionService.apply`."""
        changed = any(topic.image.name == _TOPIC for topic in delta.changed_topics.values())
        if changed or any(topic.name == _TOPIC for topic in delta.deleted_topics()):
            self.service.apply(delta)

    def close(self) -> None:
        """Close the coordinator, if it was created."""
        if self.known is not None:
            self.known.close()
