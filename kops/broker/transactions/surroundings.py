"""The parts of the broker that the transaction coordinator uses, and its periodic tasks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kops.storage.manager.settings import PeriodicTask

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker
    from kops.records.log_offsets import TopicPartition
    from kops.storage.scheduler import Scheduler

_ABORT_INTERVAL: Final = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
_EXPIRY_INTERVAL: Final = "transaction.remove.expired.transaction.cleanup.interval.ms"
ABORT: Final = PeriodicTask("transaction-abort", _ABORT_INTERVAL, _ABORT_INTERVAL)
EXPIRY: Final = PeriodicTask("transactionalId-expiration", _EXPIRY_INTERVAL, _EXPIRY_INTERVAL)


@dataclass(slots=True)
class Surroundings:
    """The parts of the broker that the coordinator uses. `listener` is that between brokers. For `complete_in_groups` see
    `MarkerWriter`."""

    loop: Loop
    node_id: int
    listener: str
    cache: MetadataCache
    replicas: ReplicaManager
    scheduler: Scheduler
    config: Callable[[], BrokerConfig]
    draw: Callable[[], float]
    new_producer_id: Callable[[], int]
    complete_in_groups: Callable[[TopicPartition, WritableTxnMarker, Callable[[str], None]], None]
