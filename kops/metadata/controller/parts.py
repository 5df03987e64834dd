"""The parts of a controller over one timeline, and the part that replays each kind of record (Kafka's QuorumController.replay)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kops.config.values.java import NumberFormatError, parse_int
from kops.errors import ApiError
from kops.metadata.controller.cluster.cluster_control import ClusterControl
from kops.metadata.controller.cluster.config_schema import BROKER, TOPIC
from kops.metadata.controller.cluster.configuration_control import ConfigurationControl
from kops.metadata.controller.cluster.feature_control import FeatureControl
from kops.metadata.controller.cluster.producer_ids import ProducerIdControl
from kops.metadata.controller.partitions.broker_events import BrokerEvents
from kops.metadata.controller.partitions.elections import Elections
from kops.metadata.controller.partitions.isr_changes import IsrChanges
from kops.metadata.controller.partitions.partition_changes import PartitionChanges
from kops.metadata.controller.partitions.reassignments import Reassignments
from kops.metadata.controller.partitions.replication_state import ReplicationState
from kops.metadata.controller.partitions.topic_control import TopicControl
from kops.timeline import Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.metadata.controller.cluster.configuration_control import Resource
    from kops.metadata.controller.cluster.settings import ControllerSettings, Draws
    from kops.protocol.declaration import Message


class Parts:
    """Everything that a controller knows about its cluster."""

    def __init__(self, node_id: int, settings: ControllerSettings, draws: Draws) -> None:
        self.timeline = timeline = Timeline()
        self.features = FeatureControl(timeline, node_id, settings.supported_features, settings.quorum_node_ids)
        self.cluster = ClusterControl(timeline, settings.cluster_id, settings.session_timeout_ms, self.features)
        self.configs = ConfigurationControl(
            timeline,
            node_id,
            settings.static_config,
            self.features,
            settings.broker_config_def,
            remote_storage_enabled=settings.remote_storage_enabled,
        )
        self.state = ReplicationState(timeline, self.configs)
        self.producer_ids = ProducerIdControl(timeline, self.cluster)
        changes = PartitionChanges(self.state, self.cluster, self.configs, self.features)
        self.topics = TopicControl(changes, settings, draws)
        self.brokers = BrokerEvents(changes)
        self.elections = Elections(changes, settings.max_elections_per_imbalance)
        self.isr_changes = IsrChanges(changes)
        self.reassignments = Reassignments(changes)
        self.features.brokers = lambda: ((one.id, one.features) for one in self.cluster.brokers.values())
        self.features.controllers = lambda: ((one.id, one.features) for one in self.cluster.controllers.values())
        self.cluster.on_new_incarnation = self.brokers.begin_incarnation
        self.configs.check_existence = self._check_existence
        # Records of other parts of Kafka (quotas, ACLs, tokens …) do not affect the controller's decisions.
        self._replays: dict[str, Callable[[Any], None]] = {
            "UnregisterBrokerRecord": self.cluster.replay_unregister,
            "FenceBrokerRecord": self.cluster.replay_fence,
            "UnfenceBrokerRecord": self.cluster.replay_fence,
            "BrokerRegistrationChangeRecord": self.cluster.replay_change,
            "RegisterControllerRecord": self.cluster.replay_register_controller,
            "TopicRecord": self.state.replay_topic,
            "PartitionRecord": self.state.replay_partition,
            "PartitionChangeRecord": self.state.replay_change,
            "RemoveTopicRecord": self.state.replay_removal,
            "ClearElrRecord": self.state.replay_clear_elr,
            "ConfigRecord": self.configs.replay,
            "FeatureLevelRecord": self.features.replay,
            "ProducerIdsRecord": self.producer_ids.replay,
        }

    def replay(self, message: Message, offset: int) -> None:
        """Replay a record at its offset. Raises ValueError for an impossible record, which no controller writes."""
        self.timeline.offset = offset
        name = type(message).__name__
        if name == "RegisterBrokerRecord":
            self.cluster.replay_register(message, offset)  # type: ignore[arg-type]  # the name says so
        elif name in self._replays:
            self._replays[name](message)

    def _check_existence(self, resource: Resource) -> None:
        kind, name = resource
        if kind == TOPIC and self.state.named(name) is None:
            raise ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"The topic '{name}' does not exist.")
        if kind == BROKER and name and not self._is_node(name):
            raise ApiError("BROKER_ID_NOT_REGISTERED", f"No node with id {name} found.")

    def _is_node(self, name: str) -> bool:
        try:
            node_id = parse_int(name)
        except NumberFormatError:
            raise ApiError("INVALID_REQUEST", f"Invalid broker name {name}") from None
        return node_id in self.cluster.brokers or self.features.is_controller_id(node_id) or node_id in self.cluster.controllers
