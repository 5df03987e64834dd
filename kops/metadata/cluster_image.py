"""A broker's view of its cluster when it starts: topics, partitions, brokers, configs and features.

The rules of replay are those of Kafka's MetadataDelta, TopicsDelta, ClusterDelta and ConfigurationsDelta (and those of metadata
transactions, KIP-868). A record that contradicts the image stops the node, so `replay` raises DecodeError with Kafka's reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kops.errors import DecodeError
from kops.metadata.records import MetadataRecord

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4


@dataclass(slots=True)
class PartitionRegistration:
    """The assignment and leadership of one partition. `directories` are directory ids in the order of `replicas`."""

    replicas: list[int]
    directories: list[str]
    leader: int
    leader_epoch: int


@dataclass(slots=True)
class ClusterImage:
    """The image after replaying records in order. `topics` maps a topic id to its name, `partitions` maps (topic id, partition) to a
    registration.
    """

    topics: dict[str, str] = field(default_factory=dict)
    partitions: dict[tuple[str, int], PartitionRegistration] = field(default_factory=dict)
    brokers: dict[int, set[str]] = field(default_factory=dict)
    broker_epochs: dict[int, int] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    _pending: list[MetadataRecord] | None = None

    def replay(self, record: MetadataRecord) -> None:
        """Apply one record. Records of an open metadata transaction take effect at its end."""
        name = record.name
        if name == "BeginTransactionRecord":
            self._pending = []
        elif name == "AbortTransactionRecord":
            self._pending = None
        elif name == "EndTransactionRecord":
            pending, self._pending = self._pending or [], None
            for waiting in pending:
                self._apply(waiting)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply(record)

    def replicas(self, topic_id: str, partition: int) -> list[int]:
        """Return the ids of the brokers with a replica, or nothing if there is no such partition
        (MetadataImage.topics().partitionReplicas).
        """
        registration = self.partitions.get((topic_id, partition))
        return [] if registration is None else registration.replicas

    def topic_config(self, topic: str) -> dict[str, str]:
        """Return the overrides of a topic."""
        return self.configs.get((TOPIC_RESOURCE, topic), {})

    def _apply(self, record: MetadataRecord) -> None:
        handler = _HANDLERS.get(record.name)
        if handler is not None:
            handler(self, record)

    def _register_broker(self, record: MetadataRecord) -> None:
        f = record.fields
        self.brokers[f["broker_id"]] = set(f.get("log_dirs") or ())
        self.broker_epochs[f["broker_id"]] = f["broker_epoch"]

    def _known_broker(self, record: MetadataRecord, action: str) -> int:
        f = record.fields
        broker: int = f["id"] if "id" in f else f["broker_id"]
        epoch: int = f["epoch"] if "epoch" in f else f["broker_epoch"]
        if broker not in self.brokers:
            raise DecodeError(f"Tried to {action} broker {broker}, but that broker was not registered.", code="bad-metadata-record")
        if self.broker_epochs[broker] != epoch:
            raise DecodeError(
                f"Tried to {action} broker {broker}, but the given epoch, {epoch}, did not match the current broker epoch, "
                f"{self.broker_epochs[broker]}",
                code="bad-metadata-record",
            )
        return broker

    def _unregister_broker(self, record: MetadataRecord) -> None:
        broker = self._known_broker(record, "unregister")
        del self.brokers[broker], self.broker_epochs[broker]

    def _fence_broker(self, record: MetadataRecord) -> None:
        self._known_broker(record, "fence")

    def _unfence_broker(self, record: MetadataRecord) -> None:
        self._known_broker(record, "unfence")

    def _change_broker(self, record: MetadataRecord) -> None:
        broker = self._known_broker(record, "change")
        if record.fields.get("log_dirs"):
            self.brokers[broker] = set(record.fields["log_dirs"])

    def _topic(self, record: MetadataRecord) -> None:
        self.topics[record.fields["topic_id"]] = record.fields["name"]

    def _remove_topic(self, record: MetadataRecord) -> None:
        topic_id = record.fields["topic_id"]
        name = self.topics.pop(topic_id, None)
        if name is None:
            raise DecodeError(f"Unable to delete topic with id {topic_id}: no such topic found.", code="bad-metadata-record")
        self.partitions = {key: value for key, value in self.partitions.items() if key[0] != topic_id}
        self.configs.pop((TOPIC_RESOURCE, name), None)

    def _partition(self, record: MetadataRecord) -> None:
        f = record.fields
        if f["topic_id"] not in self.topics:
            raise DecodeError(f"Missing topic id {f['topic_id']}", code="bad-metadata-record")
        self.partitions[f["topic_id"], f["partition_id"]] = PartitionRegistration(
            f["replicas"] or [], f.get("directories") or [], f["leader"], f["leader_epoch"]
        )

    def _change_partition(self, record: MetadataRecord) -> None:
        f = record.fields
        if f["topic_id"] not in self.topics:
            raise DecodeError(f"Missing topic id {f['topic_id']}", code="bad-metadata-record")
        registration = self.partitions.get((f["topic_id"], f["partition_id"]))
        if registration is None:
            raise DecodeError(f"Unable to find partition {f['topic_id']}:{f['partition_id']}", code="bad-metadata-record")
        if f.get("replicas") is not None:
            registration.replicas = f["replicas"]
        if f.get("directories") is not None:
            registration.directories = f["directories"]
        if "leader" in f and f["leader"] != -2:  # NO_LEADER_CHANGE
            registration.leader = f["leader"]
            registration.leader_epoch += 1

    def _config(self, record: MetadataRecord) -> None:
        f = record.fields
        values = self.configs.setdefault((f["resource_type"], f["resource_name"] or ""), {})
        if f["value"] is None:
            values.pop(f["name"], None)
        else:
            values[f["name"]] = f["value"]

    def _feature(self, record: MetadataRecord) -> None:
        self.features[record.fields["name"]] = record.fields["feature_level"]


_HANDLERS = {
    "RegisterBrokerRecord": ClusterImage._register_broker,
    "UnregisterBrokerRecord": ClusterImage._unregister_broker,
    "FenceBrokerRecord": ClusterImage._fence_broker,
    "UnfenceBrokerRecord": ClusterImage._unfence_broker,
    "BrokerRegistrationChangeRecord": ClusterImage._change_broker,
    "TopicRecord": ClusterImage._topic,
    "RemoveTopicRecord": ClusterImage._remove_topic,
    "PartitionRecord": ClusterImage._partition,
    "PartitionChangeRecord": ClusterImage._change_partition,
    "ConfigRecord": ClusterImage._config,
    "FeatureLevelRecord": ClusterImage._feature,
}
