"""Creates the transaction coordinator when it is first needed, so that a node without transactions starts no slower."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kops.broker.transactions.service import TransactionService
    from kops.broker.transactions.surroundings import Surroundings
    from kops.metadata.image.parts.topics import TopicsDelta

_TOPIC = "__transaction_state"


class Transactions:
    """The coordinator of a broker, created by the first call of `service`. `known` is it, or None before."""

    def __init__(self, around: Surroundings) -> None:
        self._around = around
        self.known: TransactionService | None = None

    @property
    def service(self) -> TransactionService:
        """The coordinator."""
        if self.known is None:
            from kops.broker.transactions.service import TransactionService

            self.known = TransactionService(self._around)
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
