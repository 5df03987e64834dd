"""Random records of the metadata log that fit the image for which they are made, and some that do not."""

from __future__ import annotations

import random
from collections.abc import Callable

from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.partition_registration import PartitionRegistration
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    FenceBrokerRecord,
    NoOpRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnfenceBrokerRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from kops.protocol.messages.client_quota_record import EntityData
from kops.protocol.messages.register_broker_record import BrokerEndpoint, BrokerFeature
from kops.protocol.messages.register_controller_record import ControllerEndpoint, ControllerFeature

# Three of them are in the same order in a HashMap of any size.
REGISTERED = range(1, 4)
BROKERS = range(1, 6)
FEATURES = ("group.version", "transaction.version", "share.version", "eligible.leader.replicas.version", "kraft.version")


class RecordSource:
    """A source of random records that mostly fit `delta`, into which the caller replays them."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.delta: MetadataDelta

    def draw(self) -> Message:
        """Return the next record."""
        return self.rng.choice(_WEIGHTED)(self)

    def topic_id(self) -> bytes:
        """Return the id of an existing topic, rarely of a missing one."""
        delta = self.delta.topics
        ids = [one for one in delta.image.by_id if one not in delta.deleted_topic_ids] + list(delta.changed_topics)
        return self.rng.choice(sorted(ids)) if ids and self.rng.random() > 0.03 else self.uuid()

    def partitions(self, topic_id: bytes) -> dict[int, PartitionRegistration]:
        """Return the partitions of a topic."""
        delta = self.delta.topics.changed_topics.get(topic_id)
        topic = self.delta.topics.image.by_id.get(topic_id) if delta is None else delta.apply()
        return {} if topic is None else dict(topic.partitions)

    def uuid(self) -> bytes:
        """Return a random id."""
        return self.rng.randbytes(16)

    def ids(self, most: int = 4) -> list[int]:
        """Return the ids of some brokers."""
        return self.rng.sample(BROKERS, self.rng.randrange(most))

    def directories(self, count: int) -> list[bytes]:
        """Return this many directories, sometimes all migrating."""
        return [bytes(16)] * count if self.rng.random() < 0.3 else [bytes(15) + bytes([self.rng.randrange(1, 9)]) for _ in range(count)]

    def broker(self) -> tuple[int, int]:
        """Return id and epoch of a broker, rarely a wrong epoch."""
        broker_id = self.rng.choice(REGISTERED)
        broker = self.delta.cluster.broker(broker_id)
        return broker_id, -7 if broker is None or self.rng.random() < 0.03 else broker.epoch


def _register_broker(source: RecordSource) -> Message:
    rng = source.rng
    ports = rng.sample(range(9000, 9009), 3)
    names = ("PLAINTEXT", "SSL", "INTERNAL")[: rng.randrange(1, 4)]
    return RegisterBrokerRecord(
        broker_id=rng.choice(REGISTERED),
        is_migrating_zk_broker=rng.random() < 0.1,
        incarnation_id=source.uuid(),
        broker_epoch=rng.randrange(1000),
        end_points=[BrokerEndpoint(name, f"host{port}", port, 0) for name, port in zip(names, ports, strict=False)],
        features=[BrokerFeature("metadata.version", 7, 30), BrokerFeature("group.version", 0, 1)][: rng.randrange(3)],
        rack=rng.choice([None, "a", "b"]),
        fenced=rng.random() < 0.5,
        in_controlled_shutdown=rng.random() < 0.2,
        log_dirs=[source.uuid() for _ in range(rng.randrange(3))],
        cordoned_log_dirs=rng.choice([None, [], [source.uuid()]]),
    )


def _register_controller(source: RecordSource) -> Message:
    return RegisterControllerRecord(
        controller_id=source.rng.randrange(3000, 3003),
        incarnation_id=source.uuid(),
        zk_migration_ready=source.rng.random() < 0.5,
        end_points=[ControllerEndpoint("CONTROLLER", "host", 9093, 0)],
        features=[ControllerFeature("metadata.version", 7, 30)],
    )


def _change_broker(source: RecordSource) -> Message:
    broker_id, epoch = source.broker()
    rng = source.rng
    return BrokerRegistrationChangeRecord(
        broker_id=broker_id,
        broker_epoch=epoch,
        fenced=rng.choice([-1, 0, 1, 2]),
        in_controlled_shutdown=rng.choice([0, 0, 1]),
        log_dirs=[source.uuid() for _ in range(rng.randrange(3))],
        cordoned_log_dirs=rng.choice([None, [], [source.uuid()]]),
    )


def _topic(source: RecordSource) -> Message:
    known = source.delta.topics
    name = f"topic-{source.rng.randrange(40)}"
    taken = name in known.created_topics or (name in known.image.by_name and not known.topic_was_deleted(name))
    return NoOpRecord() if taken else TopicRecord(name=name, topic_id=source.uuid())


def _partition(source: RecordSource) -> Message:
    rng = source.rng
    replicas = source.ids() or [1]
    topic_id = source.topic_id()
    return PartitionRecord(
        partition_id=rng.randrange(len(source.partitions(topic_id)) + 1),
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas[:2],
        removing_replicas=source.ids(2),
        adding_replicas=source.ids(2),
        leader=rng.choice([*replicas, -1]),
        leader_recovery_state=rng.choice([0, 0, 1]),
        leader_epoch=rng.randrange(9),
        partition_epoch=rng.randrange(9),
        directories=source.directories(len(replicas)),
        eligible_leader_replicas=rng.choice([None, [], [1], [2, 3]]),
        last_known_elr=rng.choice([None, [], [4]]),
    )


def _change_partition(source: RecordSource) -> Message:
    rng = source.rng
    topic_id = source.topic_id()
    partitions = source.partitions(topic_id)
    number = rng.choice(sorted(partitions)) if partitions and rng.random() > 0.03 else 77
    replicas = None if rng.random() < 0.7 or number not in partitions else rng.sample(BROKERS, len(partitions[number].replicas))
    return PartitionChangeRecord(
        partition_id=number,
        topic_id=topic_id,
        isr=rng.choice([None, [1], [2, 1]]),
        leader=rng.choice([-2, -2, -1, 1, 2, 3]),
        replicas=replicas,
        removing_replicas=rng.choice([None, [], [5]]),
        adding_replicas=rng.choice([None, [], [4]]),
        leader_recovery_state=rng.choice([-1, -1, 0, 1]),
        directories=None if replicas is None else source.directories(len(replicas)),
        eligible_leader_replicas=rng.choice([None, [], [1]]),
        last_known_elr=rng.choice([None, [], [2]]),
    )


def _config(source: RecordSource) -> Message:
    rng = source.rng
    return ConfigRecord(
        resource_type=rng.choice([2, 2, 4, 8, 16, 32, 99]),
        resource_name=rng.choice(["", "1", *(f"topic-{number}" for number in range(9))]),
        name=rng.choice(["retention.ms", "cleanup.policy", "segment.bytes", "min.insync.replicas", "interval.ms"]),
        value=rng.choice([None, "", "1", "compact"]),
    )


def _quota(source: RecordSource) -> Message:
    rng = source.rng
    kinds = rng.choice([("user",), ("client-id",), ("user", "client-id"), ("client-id", "user"), ("ip",)])
    entity = [EntityData(kind, rng.choice([None, "a", "b"])) for kind in kinds]
    key = rng.choice(["producer_byte_rate", "consumer_byte_rate", "request_percentage"])
    return ClientQuotaRecord(entity=entity, key=key, value=rng.random() * 100, remove=rng.random() < 0.3)


def _acl(source: RecordSource) -> Message:
    rng = source.rng
    codes = (rng.choice([2, 3, 7, 9]), rng.choice([3, 4, 6]), rng.choice([2, 15, 16]), rng.choice([2, 3, 4]))
    return AccessControlEntryRecord(source.uuid(), codes[0], "name", codes[1], "User:a", "*", codes[2], codes[3])


def _remove_acl(source: RecordSource) -> Message:
    known = sorted({*source.delta.acls.image.acls, *source.delta.acls.changes})
    return RemoveAccessControlEntryRecord(id=source.rng.choice([*known, source.uuid()]))


def known_credentials(delta: MetadataDelta) -> list[Message]:
    """Return the image's credentials as records."""
    mechanisms = delta.image.scram.mechanisms
    return [
        UserScramCredentialRecord(user, mechanism, one.salt, one.stored_key, one.server_key, one.iterations)
        for mechanism, users in mechanisms.items()
        for user, one in users.items()
    ]


def _credential(source: RecordSource) -> Message:
    mechanism = source.rng.choice([1, 2])
    return UserScramCredentialRecord(f"user-{source.rng.randrange(20):02}", mechanism, source.uuid(), source.uuid(), source.uuid(), 4096)


def _remove_credential(source: RecordSource) -> Message:
    # Kafka loses a credential that comes together with the removal of its mechanism's last one (ScramDelta.apply), so the first ten users
    # stay.
    mechanism = source.rng.choice([1, 2])
    stays = any(user < "user-10" for user in source.delta.image.scram.mechanisms.get(mechanism, {}))
    return RemoveUserScramCredentialRecord(name=f"user-{source.rng.randrange(10, 20)}", mechanism=mechanism) if stays else NoOpRecord()


def _token(source: RecordSource) -> Message:
    owner = source.rng.choice(["User:a", "User:b:c", "Group:d", "nobody"] if source.rng.random() < 0.2 else ["User:a"])
    issued, expires, last = sorted(source.rng.randrange(10**12) for _ in range(3))
    return DelegationTokenRecord(
        owner=owner,
        requester="User:r",
        renewers=["User:x", "User:y"][: source.rng.randrange(3)],
        issue_timestamp=issued,
        max_timestamp=last,
        expiration_timestamp=expires,
        token_id=f"token-{source.rng.randrange(20)}",
    )


def _feature(source: RecordSource) -> Message:
    name = source.rng.choice([*FEATURES, "metadata.version"])
    level = source.rng.choice([25, 28, 30, 99, 3]) if name == "metadata.version" else source.rng.randrange(3)
    return FeatureLevelRecord(name=name, feature_level=level)


_DRAWS: tuple[tuple[int, Callable[[RecordSource], Message]], ...] = (
    (4, _register_broker),
    (1, _register_controller),
    (1, lambda source: UnregisterBrokerRecord(source.broker()[0], 0)),
    (2, lambda source: FenceBrokerRecord(*source.broker())),
    (2, lambda source: UnfenceBrokerRecord(*source.broker())),
    (3, _change_broker),
    (8, _topic),
    (1, lambda source: RemoveTopicRecord(topic_id=source.topic_id())),
    (16, _partition),
    (12, _change_partition),
    (1, lambda source: ClearElrRecord(topic_name=source.rng.choice(["", "topic-1", "topic-2", "topic-3"]))),
    (6, _config),
    (4, _quota),
    (3, _acl),
    (1, _remove_acl),
    (3, _credential),
    (1, _remove_credential),
    (3, _token),
    (1, lambda source: RemoveDelegationTokenRecord(token_id=f"token-{source.rng.randrange(20)}")),
    (3, _feature),
    (1, lambda source: ProducerIdsRecord(1, 2, source.rng.randrange(100_000))),
    (1, lambda source: NoOpRecord()),
)
_WEIGHTED = tuple(draw for weight, draw in _DRAWS for _ in range(weight))
