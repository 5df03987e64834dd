"""A client's knowledge of the cluster (nodes, controller, leaders), and when it must be refreshed.

Source: Kafka's Metadata, AdminMetadataManager (the admin client's nodes and controller), NetworkClient.DefaultMetadataUpdater; KIP-899 and
KIP-1102 (back to the bootstrap servers), KIP-951 (leaders in a response's error). Times are ms of the client's clock.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kops.client.node import Node
from kops.protocol.errors import by_code
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from kops.protocol.messages import DescribeClusterResponse, MetadataResponse

NO_NODE = -1


class Leader(NamedTuple):
    """The leader of a partition. The id is -1 without a leader, the epoch -1 if it is unknown."""

    node_id: int
    epoch: int


class Metadata:
    """The metadata of one cluster. `bootstrap` are the initial addresses, to which the client can return."""

    def __init__(self, bootstrap: Sequence[tuple[str, int]], *, max_age_ms: int) -> None:
        self._bootstrap = list(bootstrap)
        self._max_age_ms = max_age_ms
        self._updated_ms = 0.0
        self.nodes: dict[int, Node] = {}
        self.controller_id = NO_NODE
        self.cluster_id: str | None = None
        self.is_bootstrap = True
        self.leaders: dict[TopicPartition, Leader] = {}
        self.topic_ids: dict[str, bytes] = {}
        self.partition_counts: dict[str, int] = {}
        self.topic_errors: dict[str, str] = {}
        self.is_wanted = True
        self.rebootstrap()

    @property
    def bootstrap_text(self) -> str:
        """The bootstrap servers as a user writes them."""
        return ",".join(Node(0, host, port).address for host, port in self._bootstrap)

    def rebootstrap(self) -> None:
        """Forget everything except the bootstrap servers."""
        self.nodes = {-index: Node(-index, host, port) for index, (host, port) in enumerate(self._bootstrap, 1)}
        self.controller_id = NO_NODE
        self.is_bootstrap = True
        self.is_wanted = True

    def is_due(self, now_ms: float) -> bool:
        """Whether a refresh was requested, or the metadata is too old."""
        return self.is_wanted or now_ms - self._updated_ms >= self._max_age_ms

    def update(self, response: MetadataResponse, now_ms: float) -> None:
        """Store the nodes and topics of a response."""
        self._set_nodes((Node(one.node_id, one.host, one.port, one.rack) for one in response.brokers), response.controller_id, now_ms)
        self.cluster_id = response.cluster_id
        for topic in response.topics:
            if topic.name is None:
                continue
            error = by_code(topic.error_code).name
            if error != "NONE":
                self.topic_errors[topic.name] = error
                continue
            self.topic_errors.pop(topic.name, None)
            if self.topic_ids.get(topic.name) != topic.topic_id:
                self._forget_topic(topic.name)
            self.topic_ids[topic.name] = topic.topic_id
            self.partition_counts[topic.name] = len(topic.partitions)
            for partition in topic.partitions:
                self.update_leader(
                    TopicPartition(topic.name, partition.partition_index), Leader(partition.leader_id, partition.leader_epoch)
                )

    def update_from_controllers(self, response: DescribeClusterResponse, now_ms: float) -> None:
        """Store the nodes for a client of controllers (KIP-919)."""
        self._set_nodes((Node(one.broker_id, one.host, one.port, one.rack) for one in response.brokers), response.controller_id, now_ms)
        self.cluster_id = response.cluster_id

    def update_leader(self, key: TopicPartition, leader: Leader) -> bool:
        """Set a partition's leader, unless a later epoch is known. Returns whether that changed anything."""
        known = self.leaders.get(key)
        if known == leader or (known is not None and known.epoch > leader.epoch >= 0):
            return False
        self.leaders[key] = leader
        return True

    def see_epoch(self, key: TopicPartition, epoch: int) -> bool:
        """Learn that a partition has at least this epoch. Returns whether its leader is unknown now, because the known one is older."""
        known = self.leaders.get(key)
        if known is None or known.epoch < 0 or epoch <= known.epoch:
            return False
        self.leaders[key] = Leader(NO_NODE, epoch)
        return True

    def leader_node(self, key: TopicPartition) -> Node | None:
        """The node of a partition's leader, or None if it is unknown."""
        leader = self.leaders.get(key)
        return None if leader is None or leader.node_id < 0 else self.nodes.get(leader.node_id)  # bootstrap servers have ids below 0

    def add_nodes(self, nodes: Iterable[Node]) -> None:
        """Add the addresses of leaders from a response."""
        for node in nodes:
            self.nodes[node.id] = node

    def _set_nodes(self, nodes: Iterable[Node], controller_id: int, now_ms: float) -> None:
        found = {node.id: node for node in nodes}
        self._updated_ms = now_ms
        self.is_wanted = False
        self.controller_id = controller_id
        # A broker that has just started may not know any broker. In this case, keep the previous nodes.
        if found:
            self.nodes = found
            self.is_bootstrap = False

    def retain(self, topics: Collection[str]) -> None:
        """Forget all topics but these."""
        for name in [name for name in self.partition_counts if name not in topics]:
            self._forget_topic(name)

    def _forget_topic(self, name: str) -> None:
        for index in range(self.partition_counts.pop(name, 0)):
            self.leaders.pop(TopicPartition(name, index), None)
