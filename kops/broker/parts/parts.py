"""The object that holds all parts of a broker. Every request handler gets it.

Source: the constructor of Kafka's KafkaApis and the arguments that BrokerServer passes to it. `kops.broker.life.broker_server` fills it. A
part looks up other parts here when it is called, so it does not depend on the order in which they are made.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from kops.metadata.image.metadata_cache import MetadataCache

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.controller_link.auto_topics import AutoTopics
    from kops.broker.controller_link.forwarding import Forwarding
    from kops.broker.controller_link.lifecycle import BrokerLifecycle
    from kops.broker.controller_link.producer_ids import ProducerIds
    from kops.broker.controller_link.to_controller import ToController
    from kops.broker.coordinators.group_coordinator import GroupCoordinator
    from kops.broker.network.events.loop import Loop
    from kops.broker.network.socket_server import SocketServer
    from kops.broker.parts.dynamic_config import DynamicBrokerConfig
    from kops.broker.replicas.manager import ReplicaManager
    from kops.broker.share_state.lazy import ShareState
    from kops.broker.shares.lazy import Shares
    from kops.broker.transactions.lazy import Transactions
    from kops.config import BrokerConfig
    from kops.replication.leading.fetch_context import FetchManager
    from kops.storage.manager.log_manager import LogManager


@dataclass(slots=True)
class BrokerParts:
    """One broker. Fields with `field(init=False)` are set in the order of the start, before the first request is read.

    `config` is the present configuration; a change at run time replaces it. `draw()` returns random numbers from 0 to below 1.
    `kraft_version()` is the quorum's `kraft.version`. `broker_epoch()` is the epoch of this broker's registration, -1 before it.
    """

    loop: Loop
    config: BrokerConfig
    node_id: int
    cluster_id: str
    draw: Callable[[], float]
    kraft_version: Callable[[], int]
    cache: MetadataCache = field(default_factory=MetadataCache)
    to_controller: ToController = field(init=False)
    forwarding: Forwarding = field(init=False)
    lifecycle: BrokerLifecycle = field(init=False)
    logs: LogManager = field(init=False)
    replica_manager: ReplicaManager = field(init=False)
    fetch_sessions: FetchManager = field(init=False)
    producer_ids: ProducerIds = field(init=False)
    transactions: Transactions = field(init=False)
    share_state: ShareState = field(init=False)
    groups: GroupCoordinator = field(init=False)
    shares: Shares = field(init=False)
    auto_topics: AutoTopics = field(init=False)
    dynamic_config: DynamicBrokerConfig = field(init=False)
    socket_server: SocketServer = field(init=False)

    def now_ms(self) -> int:
        """The wall clock, ms since the epoch."""
        return self.loop.now_ms()

    def broker_epoch(self) -> int:
        """The epoch of this broker's registration, -1 before it."""
        return self.lifecycle.broker_epoch
