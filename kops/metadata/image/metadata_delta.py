"""The changes that records make to an image (Kafka MetadataDelta)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final

from kops.metadata.image.metadata_image import MetadataImage, MetadataProvenance
from kops.metadata.image.parts.changes import contradiction
from kops.metadata.image.parts.cluster import ClusterDelta
from kops.metadata.image.parts.configs import ConfigurationsDelta, SupportedConfig, any_config
from kops.metadata.image.parts.features import FeaturesDelta
from kops.metadata.image.parts.quotas import ClientQuotasDelta
from kops.metadata.image.parts.security import AclsDelta, DelegationTokensDelta, ScramDelta
from kops.metadata.image.parts.topics import TopicsDelta
from kops.metadata.metadata_version import MetadataVersion
from kops.protocol.declaration import Message
from kops.protocol.messages import ProducerIdsRecord, RemoveTopicRecord


class MetadataDelta:
    """Changes on top of `image`, part by part. An unchanged part stays the same object.

    The properties (`features`, `cluster`, …) create their part on first access, as Kafka's getOrCreate… do; `has` does not.
    `next_producer_id` is None if no record set it.
    """

    def __init__(self, image: MetadataImage, is_supported: SupportedConfig = any_config) -> None:
        self.image = image
        self.next_producer_id: int | None = None
        self._is_supported = is_supported

    @cached_property
    def features(self) -> FeaturesDelta:
        """Changes of features."""
        return FeaturesDelta(self.image.features)

    @cached_property
    def cluster(self) -> ClusterDelta:
        """Changes of brokers and controllers."""
        return ClusterDelta(self.image.cluster)

    @cached_property
    def topics(self) -> TopicsDelta:
        """Changes of topics."""
        return TopicsDelta(self.image.topics)

    @cached_property
    def configs(self) -> ConfigurationsDelta:
        """Changes of settings."""
        return ConfigurationsDelta(self.image.configs, self._is_supported)

    @cached_property
    def client_quotas(self) -> ClientQuotasDelta:
        """Changes of quotas."""
        return ClientQuotasDelta(self.image.client_quotas)

    @cached_property
    def acls(self) -> AclsDelta:
        """Changes of ACLs."""
        return AclsDelta(self.image.acls)

    @cached_property
    def scram(self) -> ScramDelta:
        """Changes of credentials."""
        return ScramDelta(self.image.scram)

    @cached_property
    def delegation_tokens(self) -> DelegationTokensDelta:
        """Changes of tokens."""
        return DelegationTokensDelta(self.image.delegation_tokens)

    def has(self, part: str) -> bool:
        """Whether the part with this property's name has changes."""
        return part in self.__dict__

    @property
    def metadata_version_change(self) -> MetadataVersion | None:
        """The metadata.version that a record set, or None."""
        return self.features.metadata_version_change if self.has("features") else None

    def replay(self, record: Message) -> None:
        """Replay one record. Raises DecodeError with Kafka's reason if it contradicts the image or belongs to the frame of a
        transaction."""
        handler = _HANDLERS.get(type(record).__name__)
        if handler is None:
            raise contradiction(f"Unknown metadata record type {type(record).__name__}")
        try:
            handler(self, record)
        except ValueError as error:
            raise contradiction(str(error)) from None

    def finish_snapshot(self) -> None:
        """Finish a snapshot: remove everything that it did not name."""
        for part in _PARTS:
            getattr(self, part).finish_snapshot()

    def apply(self, provenance: MetadataProvenance) -> MetadataImage:
        """Return the image with the changes. `provenance` names the last record."""
        changed = {part: getattr(self, part).apply() for part in _PARTS if self.has(part)}
        unchanged = {part: getattr(self.image, part) for part in _PARTS if part not in changed}
        next_producer_id = self.image.next_producer_id if self.next_producer_id is None else self.next_producer_id
        return MetadataImage(provenance=provenance, next_producer_id=next_producer_id, **changed, **unchanged)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        self.configs.replay_remove_topic(self.topics.replay_remove_topic(record))

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.next_producer_id = record.next_producer_id


def _ignore(delta: MetadataDelta, record: Message) -> None:
    pass


_PARTS: Final = ("features", "cluster", "topics", "configs", "client_quotas", "acls", "scram", "delegation_tokens")
_HANDLERS: Final[dict[str, Callable[[MetadataDelta, Any], None]]] = {
    "RegisterBrokerRecord": lambda delta, record: delta.cluster.replay_register_broker(record),
    "UnregisterBrokerRecord": lambda delta, record: delta.cluster.replay_unregister_broker(record),
    "RegisterControllerRecord": lambda delta, record: delta.cluster.replay_register_controller(record),
    "FenceBrokerRecord": lambda delta, record: delta.cluster.replay_fence(record),
    "UnfenceBrokerRecord": lambda delta, record: delta.cluster.replay_unfence(record),
    "BrokerRegistrationChangeRecord": lambda delta, record: delta.cluster.replay_change(record),
    "TopicRecord": lambda delta, record: delta.topics.replay_topic(record),
    "PartitionRecord": lambda delta, record: delta.topics.replay_partition(record),
    "PartitionChangeRecord": lambda delta, record: delta.topics.replay_partition_change(record),
    "ClearElrRecord": lambda delta, record: delta.topics.replay_clear_elr(record),
    "RemoveTopicRecord": MetadataDelta._remove_topic,
    "ConfigRecord": lambda delta, record: delta.configs.replay_config(record),
    "FeatureLevelRecord": lambda delta, record: delta.features.replay_feature_level(record),
    "ClientQuotaRecord": lambda delta, record: delta.client_quotas.replay_client_quota(record),
    "ProducerIdsRecord": MetadataDelta._producer_ids,
    "AccessControlEntryRecord": lambda delta, record: delta.acls.replay_entry(record),
    "RemoveAccessControlEntryRecord": lambda delta, record: delta.acls.replay_remove_entry(record),
    "UserScramCredentialRecord": lambda delta, record: delta.scram.replay_credential(record),
    "RemoveUserScramCredentialRecord": lambda delta, record: delta.scram.replay_remove_credential(record),
    "DelegationTokenRecord": lambda delta, record: delta.delegation_tokens.replay_token(record),
    "RemoveDelegationTokenRecord": lambda delta, record: delta.delegation_tokens.replay_remove_token(record),
    "NoOpRecord": _ignore,
    "ZkMigrationStateRecord": _ignore,
}
