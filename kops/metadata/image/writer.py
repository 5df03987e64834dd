"""Turns an image into the records of a snapshot (Kafka ImageWriter, ImageWriterOptions, the images' `write`).

The order is Kafka's: features with metadata.version first, brokers, controllers, topics by the hashes of their ids, each with its
partitions, settings, quotas, producer ids, ACLs, credentials, tokens. If Kafka keeps a part in a HashMap keyed by an enumeration, its order
differs from JVM to JVM; kops sorts it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from kops.config.values.java_hash import HashOrder
from kops.metadata.directory_id import MIGRATING
from kops.metadata.metadata_version import FEATURE_NAME, MetadataVersion
from kops.protocol.messages import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from kops.protocol.messages.client_quota_record import EntityData
from kops.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature
from kops.protocol.messages.register_controller_record import ControllerEndpoint, ControllerFeature

if TYPE_CHECKING:
    from kops.metadata.broker_registration import BrokerRegistration, ControllerRegistration
    from kops.metadata.image.metadata_image import MetadataImage
    from kops.metadata.image.parts.cluster import ClusterImage
    from kops.metadata.image.parts.features import FeaturesImage
    from kops.metadata.image.parts.security import DelegationTokensImage, ScramImage
    from kops.metadata.image.parts.topics import TopicsImage
    from kops.protocol.declaration import Message

Record = tuple["Message", int]
K = TypeVar("K", int, str)
_MECHANISMS: Final = ("UNKNOWN", "SCRAM_SHA_256", "SCRAM_SHA_512")
_MIGRATION_LEVEL: Final = 8
_SCRAM_LEVEL: Final = 11
_DELEGATION_TOKEN_LEVEL: Final = 14


class UnwritableMetadata(Exception):
    """An image has data for which a metadata.version has no records."""

    def __init__(self, version: MetadataVersion, loss: str) -> None:
        super().__init__(f"Metadata has been lost because the following could not be represented in metadata.version {version}: {loss}")
        self.version = version
        self.loss = loss


def _refuse(loss: UnwritableMetadata) -> None:
    raise loss


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """The target version, whether to write eligible leader replicas, and the handler for data that the version can't represent."""

    version: MetadataVersion
    with_elr: bool = False
    on_loss: Callable[[UnwritableMetadata], None] = _refuse

    @classmethod
    def of(cls, image: MetadataImage) -> WriterOptions:
        """Return options for the image's own version and features. Raises ValueError if it has no metadata.version."""
        if image.features.metadata_version is None:
            raise ValueError("the image has no metadata.version")
        return cls(image.features.metadata_version, image.features.is_elr_enabled)

    def lose(self, what: str) -> None:
        """Handle data that the version can't represent."""
        self.on_loss(UnwritableMetadata(self.version, what))


def write_image(image: MetadataImage, options: WriterOptions) -> Iterator[Record]:
    """Yield the records that turn an empty image into this one. Raises UnwritableMetadata unless `on_loss` lets it continue."""
    yield from _features(image.features, options)
    yield from _cluster(image.cluster, options)
    yield from _topics(image.topics, options)
    for resource in sorted(image.configs.resources):
        values = image.configs.resources[resource]
        for name in _ordered(values):
            yield ConfigRecord(resource_type=resource.type, resource_name=resource.name, name=name, value=values[name]), 0
    for entity in sorted(image.client_quotas.entities, key=repr):
        quotas = image.client_quotas.entities[entity]
        names = dict(entity)
        parts = [EntityData(entity_type=kind, entity_name=names[kind]) for kind in _ordered(names)]
        for key in _ordered(quotas):
            yield ClientQuotaRecord(entity=parts, key=key, value=quotas[key], remove=False), 0
    if image.next_producer_id >= 0:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id), 0
    for acl_id in sorted(image.acls.acls):
        acl = image.acls.acls[acl_id]
        yield AccessControlEntryRecord(acl_id, *(getattr(acl, name) for name in acl.__slots__)), 0
    yield from _scram(image.scram, options)
    yield from _tokens(image.delegation_tokens, options)


def _ordered(keys: Iterable[K]) -> list[K]:
    """Return the keys in the order of a HashMap into which they were put in this order."""
    order: HashOrder[K] = HashOrder()
    for key in keys:
        order.put(key)
    return list(order)


def _features(features: FeaturesImage, options: WriterOptions) -> Iterator[Record]:
    # This record comes first and in version 0, because it says how to read the following ones.
    yield FeatureLevelRecord(FEATURE_NAME, options.version.level), 0
    for name in _ordered(features.levels):
        yield FeatureLevelRecord(name, features.levels[name]), 0


def _cluster(cluster: ClusterImage, options: WriterOptions) -> Iterator[Record]:
    for broker_id in _ordered(cluster.brokers):
        yield _broker(cluster.brokers[broker_id], options), options.version.register_broker_record_version
    if cluster.controllers and not options.version.has_controller_registration:
        options.lose("controller registration data")
        return
    for controller_id in _ordered(cluster.controllers):
        yield _controller(cluster.controllers[controller_id]), 0


def _broker(broker: BrokerRegistration, options: WriterOptions) -> RegisterBrokerRecord:
    version = options.version
    can_migrate = version.level >= _MIGRATION_LEVEL
    if broker.is_migrating_zk_broker and not can_migrate:
        options.lose("the isMigratingZkBroker state of one or more brokers")
    if broker.directories and not version.has_directory_assignment:
        options.lose("the online log directories of one or more brokers")
    if broker.cordoned_directories is not None and not version.has_cordoned_log_dirs:
        options.lose("the cordoned log directories of one or more brokers")
    cordoned = broker.cordoned_directories if version.has_cordoned_log_dirs else None
    return RegisterBrokerRecord(
        broker_id=broker.id,
        is_migrating_zk_broker=broker.is_migrating_zk_broker and can_migrate,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[BrokerEndpoint(*broker.listeners[name]) for name in _ordered(broker.listeners)],
        features=[BrokerFeature(name, *broker.features[name]) for name in _ordered(broker.features)],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=list(broker.directories) if version.has_directory_assignment else [],
        cordoned_log_dirs=None if cordoned is None else list(cordoned),
    )


def _controller(controller: ControllerRegistration) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[ControllerEndpoint(*controller.listeners[name]) for name in _ordered(controller.listeners)],
        features=[ControllerFeature(name, *controller.features[name]) for name in _ordered(controller.features)],
    )


def _topics(topics: TopicsImage, options: WriterOptions) -> Iterator[Record]:
    for topic_id in sorted(topics.by_id, key=_uuid_hash):
        topic = topics.by_id[topic_id]
        yield TopicRecord(name=topic.name, topic_id=topic_id), 0
        for number in sorted(topic.partitions):
            partition = topic.partitions[number]
            if not options.version.has_directory_assignment and any(directory != MIGRATING for directory in partition.directories):
                options.lose("the directory assignment state of one or more replicas")
            yield partition.to_record(topic_id, number, options.version, with_elr=options.with_elr)


def _uuid_hash(uuid: bytes) -> int:
    """Return Uuid.hashCode."""
    halves = int.from_bytes(uuid[:8], "big") ^ int.from_bytes(uuid[8:], "big")
    low = (halves >> 32 ^ halves) & 0xFFFF_FFFF
    return low - 2 * (low & 0x8000_0000)


def _scram(scram: ScramImage, options: WriterOptions) -> Iterator[Record]:
    if scram.mechanisms and options.version.level < _SCRAM_LEVEL:
        users = "".join(f"{_MECHANISMS[kind]}:{', '.join(_ordered(scram.mechanisms[kind]))}}},{{" for kind in sorted(scram.mechanisms))
        options.lose(f"ScramImage({{{users}}})")
        return
    for mechanism in sorted(scram.mechanisms):
        credentials = scram.mechanisms[mechanism]
        for user in _ordered(credentials):
            one = credentials[user]
            yield UserScramCredentialRecord(user, mechanism, one.salt, one.stored_key, one.server_key, one.iterations), 0


def _tokens(image: DelegationTokensImage, options: WriterOptions) -> Iterator[Record]:
    if image.tokens and options.version.level < _DELEGATION_TOKEN_LEVEL:
        options.lose(f"DelegationTokenImage({', '.join(_ordered(image.tokens))})")
        return
    for token_id in _ordered(image.tokens):
        token = image.tokens[token_id]
        record = DelegationTokenRecord(
            owner=token.owner,
            requester=token.requester,
            renewers=list(token.renewers),
            issue_timestamp=token.issue_timestamp,
            max_timestamp=token.max_timestamp,
            expiration_timestamp=token.expiration_timestamp,
            token_id=token_id,
        )
        yield record, 0
