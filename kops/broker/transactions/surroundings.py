"""What the transaction coordinator uses of its broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.loop import Loop
    from kops.broker.replicas.manager import ReplicaManager
    from kops.config import BrokerConfig
    from kops.metadata.image.metadata_cache import MetadataCache
    from kops.protocol.messages.write_txn_markers_request import WritableTxnMarker
    from kops.records.log_offsets import TopicPartition
    from kops.storage.scheduler import Scheduler


@dataclass(slots=True)
class Surroundings:
    """What the coordinator uses of its broker; `listener` is the one between brokers. For `complete_in_groups` see `MarkerWriter`."""

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
