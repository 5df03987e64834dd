"""The admin client and Java's Admin ask the same three nodes of Apache Kafka: they get the same values and the same errors. Each sees what
the other one changed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

import kops
import kops.aio
from kops import admin as v
from kops.admin import AlterConfigOp, ConfigResource, NewTopic, OffsetSpec, TopicPartition, TopicPartitionReplica
from kops.client.errors import KafkaError
from tests.differential.conftest import RealThree
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.patience import until

pytestmark = pytest.mark.slow
ADMIN = "org.apache.kafka.clients.admin"
COMMON = "org.apache.kafka.common"
TOPIC = "admin-real"
KEY = TopicPartition(TOPIC, 0)
NOBODY = TopicPartition(f"{TOPIC}-missing", 0)


class JavaAdmin:
    """Java's Admin through py4j. Its answers are Python values."""

    def __init__(self, oracle: Oracle, bootstrap: str) -> None:
        self.oracle = oracle
        self.admin = oracle.java_class(f"{ADMIN}.Admin").create(oracle.properties({"bootstrap.servers": bootstrap}))
        self.lists = oracle.java_class("java.util.List")
        self.sets = oracle.java_class("java.util.Set")
        self.maps = oracle.java_class("java.util.Map")
        self.errors = oracle.java_class(f"{COMMON}.protocol.Errors")

    def key(self, key: TopicPartition) -> Any:
        return self.oracle.java_class(f"{COMMON}.TopicPartition")(*key)

    def options(self, name: str) -> Any:
        return self.oracle.java_class(f"{ADMIN}.{name}")()

    def all(self, collection: Any) -> list[Any]:
        """Return the elements of any Java collection."""
        return list(self.oracle.jvm.java.util.ArrayList(collection))

    def error(self, future: Any) -> str:
        """Return the name of the error with which a future ends, or NONE."""
        try:
            future.get()
        except Py4JJavaError as caught:
            cause = caught.java_exception
            return str(self.errors.forException(cause.getCause() if cause.getCause() is not None else cause).name())
        return "NONE"


@pytest.fixture(scope="module")
def bootstrap(real_three: RealThree) -> Iterator[str]:
    """Provide the nodes, with a topic that has records. In the end nothing has changed."""
    servers = real_three.nodes.bootstrap
    with kops.Admin(bootstrap_servers=servers) as admin:
        before = set(admin.list_topics(list_internal=True))
        admin.create_topics([NewTopic(TOPIC, 3, 2, configs={"retention.ms": "3600000", "min.insync.replicas": "1"})]).all()
        until(lambda: admin.describe_topics([TOPIC]), lambda found: not found.errors())
        with kops.Producer(bootstrap_servers=servers) as producer:
            for number in range(9):
                producer.send(TOPIC, b"%d" % number, partition=number % 2, timestamp=1_700_000_000_000 + number)
        yield servers
        admin.delete_topics(set(admin.list_topics(list_internal=True)) - before).all()
        until(lambda: set(admin.list_topics(list_internal=True)), lambda found: found == before)


@pytest.fixture(scope="module")
def ours(bootstrap: str) -> Iterator[kops.Admin]:
    with kops.Admin(bootstrap_servers=bootstrap) as admin:
        yield admin


@pytest.fixture(scope="module")
def theirs(oracle: Oracle, bootstrap: str) -> Iterator[JavaAdmin]:
    java = JavaAdmin(oracle, bootstrap)
    yield java
    java.admin.close()


def error_of(ask: Callable[[], Any]) -> str:
    """Return the name of the error of a call, or of its only key, or NONE if there is none."""
    try:
        found = ask()
    except KafkaError as error:
        return error.name
    failed = list(found.errors().values()) if isinstance(found, v.Results) else []
    return failed[0].name if failed else "NONE"


def option(value: Any) -> Any:
    """Return the value of a Java Optional, or None."""
    for name in ("get", "getAsLong", "getAsInt"):
        if value.getClass().getSimpleName() == {"get": "Optional", "getAsLong": "OptionalLong", "getAsInt": "OptionalInt"}[name]:
            return getattr(value, name)() if value.isPresent() else None
    raise AssertionError(value)


def test_topics(ours: kops.Admin, theirs: JavaAdmin) -> None:
    java = theirs.all(theirs.admin.listTopics().listings().get())
    listed = until(ours.list_topics, lambda found: len(found) == len(java))
    assert {(one.name, one.topic_id, one.is_internal) for one in listed.values()} == {
        (one.name(), one.topicId().toString(), one.isInternal()) for one in java
    }
    described = theirs.admin.describeTopics(theirs.lists.of(TOPIC)).allTopicNames().get()[TOPIC]
    found = ours.describe_topics([TOPIC])[TOPIC]
    by_id = ours.describe_topics([found.topic_id], by_id=True)[found.topic_id]
    assert [
        (
            one.partition,
            one.leader and one.leader.id,
            [node.id for node in one.replicas],
            {node.id for node in one.isr},
            one.elr and len(one.elr),
        )
        for one in found.partitions
    ] == [
        (
            one.partition(),
            one.leader().id(),
            [node.id() for node in one.replicas()],
            {node.id() for node in one.isr()},
            one.elr().size() or (),
        )
        for one in described.partitions()
    ]
    assert [one.partition for one in by_id.partitions] == [0, 1, 2]
    assert found.topic_id == described.topicId().toString()
    for name in ("no spaces", TOPIC, ""):
        new = theirs.oracle.java_class(f"{ADMIN}.NewTopic")(name, 1, theirs.oracle.short(1))
        expected = theirs.error(theirs.admin.createTopics(theirs.lists.of(new)).all())
        assert error_of(lambda name=name: ours.create_topics([NewTopic(name, 1, 1)])) == expected  # type: ignore[misc]
    assert error_of(lambda: ours.create_partitions({TOPIC: 2})) == "INVALID_PARTITIONS"
    assert error_of(lambda: ours.delete_topics(["admin-real-missing"])) == "UNKNOWN_TOPIC_OR_PARTITION"


def test_cluster(ours: kops.Admin, theirs: JavaAdmin) -> None:
    java = theirs.admin.describeCluster()
    found = ours.describe_cluster(include_authorized_operations=True, include_fenced_brokers=True)
    assert {(node.id, node.host, node.port) for node in found.nodes} == {
        (node.id(), node.host(), node.port()) for node in theirs.all(java.nodes().get())
    }
    assert found.cluster_id == java.clusterId().get()
    described = theirs.admin.describeFeatures().featureMetadata().get()
    features = ours.describe_features()
    assert {name: (one.min_version, one.max_version) for name, one in features.finalized_features.items()} == {
        name: (one.minVersionLevel(), one.maxVersionLevel()) for name, one in described.finalizedFeatures().items()
    }
    assert {name: (one.min_version, one.max_version) for name, one in features.supported_features.items()} == {
        name: (one.minVersion(), one.maxVersion()) for name, one in described.supportedFeatures().items()
    }
    quorum, info = ours.describe_metadata_quorum(), theirs.admin.describeMetadataQuorum().quorumInfo().get()
    assert quorum.leader_id == info.leaderId()
    assert [(one.replica_id, one.replica_directory_id) for one in quorum.voters] == [
        (one.replicaId(), one.replicaDirectoryId().toString()) for one in info.voters()
    ]
    assert quorum.nodes.keys() == set(info.nodes())
    assert error_of(lambda: ours.unregister_broker(99)) == theirs.error(theirs.admin.unregisterBroker(99).all())
    directory = theirs.oracle.java_class(f"{COMMON}.Uuid").fromString("AAAAAAAAAAAAAAAAAAAAAQ")
    expected = theirs.error(theirs.admin.removeRaftVoter(99, directory).all())
    assert error_of(lambda: ours.remove_raft_voter(99, "AAAAAAAAAAAAAAAAAAAAAQ")) == expected
    endpoint = theirs.oracle.java_class(f"{ADMIN}.RaftVoterEndpoint")("CONTROLLER", "127.0.0.1", 1)
    expected = theirs.error(theirs.admin.addRaftVoter(99, directory, theirs.sets.of(endpoint)).all())
    add = lambda: ours.add_raft_voter(99, "AAAAAAAAAAAAAAAAAAAAAQ", [v.RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1)])  # noqa: E731
    assert error_of(add) == expected
    update = {"metadata.version": v.FeatureUpdate(10_000)}
    assert error_of(lambda: ours.update_features(update, validate_only=True)) == "INVALID_UPDATE_VERSION"


def test_settings(ours: kops.Admin, theirs: JavaAdmin) -> None:
    kinds = theirs.oracle.java_class(f"{COMMON}.config.ConfigResource$Type")
    resource = theirs.oracle.java_class(f"{COMMON}.config.ConfigResource")
    options = theirs.options("DescribeConfigsOptions").includeSynonyms(True).includeDocumentation(True)
    for java_key, key in (
        (resource(kinds.TOPIC, TOPIC), ConfigResource.topic(TOPIC)),
        (resource(kinds.BROKER, "2"), ConfigResource.broker(2)),
        (resource(kinds.BROKER_LOGGER, "2"), ConfigResource.broker_logger(2)),
        (resource(kinds.GROUP, "g"), ConfigResource.group("g")),
    ):
        described = theirs.all(theirs.admin.describeConfigs(theirs.lists.of(java_key), options).all().get()[java_key].entries())
        found = ours.describe_configs([key], include_synonyms=True, include_documentation=True)[key]
        assert {
            (
                one.name,
                one.value,
                one.source.name,
                one.is_sensitive,
                one.is_read_only,
                one.type.name,
                one.documentation,
                tuple((other.name, other.value, other.source.name) for other in one.synonyms),
            )
            for one in found.values()
        } == {
            (
                one.name(),
                one.value(),
                one.source().name(),
                one.isSensitive(),
                one.isReadOnly(),
                one.type().name(),
                one.documentation(),
                tuple((other.name(), other.value(), other.source().name()) for other in one.synonyms()),
            )
            for one in described
        }
    changes = {
        ConfigResource.topic(TOPIC): [AlterConfigOp.set("cleanup.policy", "delete"), AlterConfigOp.append("cleanup.policy", "compact")],
        ConfigResource.broker(2): [AlterConfigOp.delete("log.cleaner.threads")],
        ConfigResource.broker_logger(2): [AlterConfigOp.set("kafka.server.KafkaApis", "LOUD")],
    }
    outcomes = ours.incremental_alter_configs(changes, validate_only=True)
    assert {key.type.name: error.name for key, error in outcomes.errors().items()} == {
        "TOPIC": "INVALID_REQUEST",
        "BROKER_LOGGER": "INVALID_CONFIG",
    }
    subscription = ConfigResource.client_metrics("all")
    ours.incremental_alter_configs({subscription: [AlterConfigOp.set("interval.ms", "5000")]}).all()
    listed = until(ours.list_config_resources, lambda found: subscription in found)

    def listed_by_java() -> set[tuple[str, str]]:
        return {(one.type().name(), one.name()) for one in theirs.all(theirs.admin.listConfigResources().all().get())}

    # Java may ask a broker that does not know the new resource yet.
    assert {(one.type.name, one.name) for one in listed} == until(listed_by_java, lambda found: ("CLIENT_METRICS", "all") in found)
    ours.incremental_alter_configs({subscription: [AlterConfigOp.delete("interval.ms")]}).all()


def test_replicas(ours: kops.Admin, theirs: JavaAdmin) -> None:
    described = theirs.admin.describeLogDirs(theirs.lists.of(1, 2, 3)).allDescriptions().get()
    found = ours.describe_log_dirs([1, 2, 3]).all()
    assert {
        (broker, path, key.topic, key.partition, info.size, info.is_future)
        for broker, dirs in found.items()
        for path, one in dirs.items()
        for key, info in one.replica_infos.items()
        if key.topic == TOPIC
    } == {
        (broker, path, key.topic(), key.partition(), info.size(), info.isFuture())
        for broker, dirs in described.items()
        for path, one in dirs.items()
        for key, info in one.replicaInfos().items()
        if key.topic() == TOPIC
    }
    total = {path: one.total_bytes for dirs in found.values() for path, one in dirs.items()}
    assert total == {path: option(one.totalBytes()) for dirs in described.values() for path, one in dirs.items()}
    replica = next(
        TopicPartitionReplica(TOPIC, 0, broker) for broker, dirs in found.items() for one in dirs.values() if KEY in one.replica_infos
    )
    java_replica = theirs.oracle.java_class(f"{COMMON}.TopicPartitionReplica")(*replica)
    place = theirs.admin.describeReplicaLogDirs(theirs.lists.of(java_replica)).all().get()[java_replica]
    here = ours.describe_replica_log_dirs([replica])[replica]
    assert here.current_replica_log_dir == place.getCurrentReplicaLogDir()
    assert (here.future_replica_log_dir, here.future_replica_offset_lag) == (None, -1)
    assert error_of(lambda: ours.alter_replica_log_dirs({replica: "/not/there"})) == "LOG_DIR_NOT_FOUND"
    election = theirs.oracle.java_class(f"{COMMON}.ElectionType").PREFERRED
    for key in (KEY, NOBODY):
        java = theirs.admin.electLeaders(election, theirs.sets.of(theirs.key(key))).partitions().get()[theirs.key(key)]
        expected = str(theirs.errors.forException(java.get()).name()) if java.isPresent() else "NONE"
        assert error_of(lambda key=key: ours.elect_leaders(v.ElectionType.PREFERRED, [key])) == expected  # type: ignore[misc]
    assert error_of(lambda: ours.alter_partition_reassignments({KEY: None})) == "NO_REASSIGNMENT_IN_PROGRESS"
    assert error_of(lambda: ours.alter_partition_reassignments({KEY: [9]})) == "INVALID_REPLICA_ASSIGNMENT"
    assert ours.list_partition_reassignments([KEY]) == {}


def test_offsets(ours: kops.Admin, theirs: JavaAdmin) -> None:
    java_spec = theirs.oracle.java_class(f"{ADMIN}.OffsetSpec")
    stamp = 1_700_000_000_004
    for spec, java in (
        (OffsetSpec.latest(), java_spec.latest()),
        (OffsetSpec.earliest(), java_spec.earliest()),
        (OffsetSpec.max_timestamp(), java_spec.maxTimestamp()),
        (OffsetSpec.earliest_local(), java_spec.earliestLocal()),
        (OffsetSpec.latest_tiered(), java_spec.latestTiered()),
        (OffsetSpec.earliest_pending_upload(), java_spec.earliestPendingUpload()),
        (OffsetSpec.for_timestamp(stamp), java_spec.forTimestamp(stamp)),
    ):
        keys = [TopicPartition(TOPIC, number) for number in range(3)]
        expected = theirs.admin.listOffsets(theirs.maps.copyOf({theirs.key(key): java for key in keys})).all().get()
        found = ours.list_offsets(dict.fromkeys(keys, spec)).all()
        assert {key: (one.offset, one.timestamp, one.leader_epoch) for key, one in found.items()} == {
            TopicPartition(key.topic(), key.partition()): (one.offset(), one.timestamp(), option(one.leaderEpoch()))
            for key, one in expected.items()
        }
    assert error_of(lambda: ours.list_offsets({NOBODY: OffsetSpec.latest()})) == "UNKNOWN_TOPIC_OR_PARTITION"
    assert ours.delete_records({TopicPartition(TOPIC, 1): 1}).all() == {TopicPartition(TOPIC, 1): 1}
    assert error_of(lambda: ours.delete_records({KEY: 1000})) == "OFFSET_OUT_OF_RANGE"


def test_groups(ours: kops.Admin, theirs: JavaAdmin) -> None:
    group = "admin-real-group"
    offset = v.OffsetAndMetadata(3, "note", 0)
    given: dict[TopicPartition, v.OffsetAndMetadata | int] = {KEY: offset, TopicPartition(TOPIC, 1): 2}
    assert ours.alter_consumer_group_offsets(group, given).all()
    java = theirs.admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
    assert {
        TopicPartition(key.topic(), key.partition()): v.OffsetAndMetadata(one.offset(), one.metadata(), option(one.leaderEpoch()))
        for key, one in java.items()
    } == ours.list_consumer_group_offsets({group: None})[group]
    listed = {one.group_id: one for one in ours.list_groups().all()}
    assert {
        (one.group_id, one.type and one.type.name, one.protocol, one.group_state and one.group_state.name) for one in listed.values()
    } == {
        (one.groupId(), option(one.type()).name(), one.protocol(), option(one.groupState()).name())
        for one in theirs.all(theirs.admin.listGroups().all().get())
    }
    described = theirs.admin.describeConsumerGroups(theirs.lists.of(group)).all().get()[group]
    found = ours.describe_consumer_groups([group], include_authorized_operations=True)[group]
    assert (found.is_simple_consumer_group, found.group_state.name, found.type.name, found.partition_assignor, found.coordinator.id) == (
        described.isSimpleConsumerGroup(),
        described.groupState().name(),
        described.type().name(),
        described.partitionAssignor(),
        described.coordinator().id(),
    )
    assert found.authorized_operations
    missing = theirs.lists.of("missing")
    for ask, future in (
        (lambda: ours.describe_consumer_groups(["missing"]), theirs.admin.describeConsumerGroups(missing).all()),
        (lambda: ours.describe_classic_groups(["missing"]), theirs.admin.describeClassicGroups(missing).all()),
        (lambda: ours.describe_share_groups(["missing"]), theirs.admin.describeShareGroups(missing).all()),
        (lambda: ours.describe_streams_groups(["missing"]), theirs.admin.describeStreamsGroups(missing).all()),
        (lambda: ours.delete_consumer_groups(["missing"]), theirs.admin.deleteConsumerGroups(missing).all()),
        (lambda: ours.delete_share_groups(["missing"]), theirs.admin.deleteShareGroups(missing).all()),
        (lambda: ours.describe_classic_groups([group]), theirs.admin.describeClassicGroups(theirs.lists.of(group)).all()),
    ):
        assert error_of(ask) == theirs.error(future)
    assert error_of(lambda: ours.remove_members_from_consumer_group(group, ["nobody"])) == "UNKNOWN_MEMBER_ID"
    assert ours.remove_members_from_consumer_group(group).all() == {}
    assert ours.delete_consumer_group_offsets(group, [KEY]).all() == {KEY: None}
    assert ours.delete_consumer_groups([group]).all() == {group: None}


def test_transactions(ours: kops.Admin, theirs: JavaAdmin) -> None:
    fenced = ours.fence_producers(["admin-real-txn"])["admin-real-txn"]
    described = theirs.admin.describeTransactions(theirs.lists.of("admin-real-txn")).all().get()["admin-real-txn"]
    found = ours.describe_transactions(["admin-real-txn"])["admin-real-txn"]
    assert (found.producer_id, found.producer_epoch) == fenced
    assert (found.coordinator_id, found.state, found.producer_id, found.producer_epoch, found.transaction_timeout_ms) == (
        described.coordinatorId(),
        described.state().toString(),
        described.producerId(),
        described.producerEpoch(),
        described.transactionTimeoutMs(),
    )
    assert found.transaction_start_time_ms == option(described.transactionStartTimeMs())
    ours.force_terminate_transaction("admin-real-txn")
    java = theirs.all(theirs.admin.listTransactions().all().get())
    listed = [one for some in ours.list_transactions(transactional_id_pattern="admin-real.*").all().values() for one in some]
    assert {(one.transactional_id, one.producer_id, str(one.state)) for one in listed} == {
        (one.transactionalId(), one.producerId(), one.state().toString()) for one in java if one.transactionalId().startswith("admin-real")
    }
    states = theirs.admin.describeProducers(theirs.lists.of(theirs.key(KEY))).all().get()[theirs.key(KEY)].activeProducers()
    assert [
        (one.producer_id, one.producer_epoch, one.last_sequence, one.last_timestamp) for one in ours.describe_producers([KEY])[KEY]
    ] == [(one.producerId(), one.producerEpoch(), one.lastSequence(), one.lastTimestamp()) for one in states]
    producer = ours.describe_producers([KEY])[KEY][0]
    spec = v.AbortTransactionSpec(KEY, producer.producer_id, producer.producer_epoch, 0)
    java_spec = theirs.oracle.java_class(f"{ADMIN}.AbortTransactionSpec")(
        theirs.key(KEY), producer.producer_id, theirs.oracle.short(producer.producer_epoch), 0
    )
    assert error_of(lambda: ours.abort_transaction(spec)) == theirs.error(theirs.admin.abortTransaction(java_spec).all())


def test_users_and_quotas(ours: kops.Admin, theirs: JavaAdmin) -> None:
    mechanism = v.ScramMechanism.SCRAM_SHA_256
    user = "admin-real-user"
    credential = v.UserScramCredentialUpsertion(user, mechanism, "secret", 4096, b"salt" * 4)
    formatter = theirs.oracle.java_class(f"{COMMON}.security.scram.internals.ScramFormatter")(
        theirs.oracle.java_class(f"{COMMON}.security.scram.internals.ScramMechanism").SCRAM_SHA_256
    )
    assert credential.salted_password() == bytes(formatter.hi(b"secret", b"salt" * 4, 4096))
    assert ours.alter_user_scram_credentials([credential, v.UserScramCredentialUpsertion("", mechanism, "x")]).errors().keys() == {""}
    described = until(lambda: ours.describe_user_scram_credentials([user]), lambda found: not found.errors())
    java = theirs.admin.describeUserScramCredentials().all().get()
    assert [(one.mechanism.name, one.iterations) for one in described[user].credential_infos] == [
        (one.mechanism().name(), one.iterations()) for one in java[user].credentialInfos()
    ]
    assert ours.alter_user_scram_credentials([v.UserScramCredentialDeletion(user, mechanism)]).all() == {user: None}
    entity = v.ClientQuotaEntity.of({"user": user, "client-id": None})
    assert ours.alter_client_quotas([v.ClientQuotaAlteration(entity, {"producer_byte_rate": 1024.0})]).all() == {entity: None}
    components = [v.ClientQuotaFilterComponent("user", user), v.ClientQuotaFilterComponent("client-id")]
    found = until(lambda: ours.describe_client_quotas(components, strict=True), bool)
    assert found == {entity: {"producer_byte_rate": 1024.0}}
    everything = theirs.admin.describeClientQuotas(theirs.oracle.java_class(f"{COMMON}.quota.ClientQuotaFilter").all()).entities().get()
    assert {
        (v.ClientQuotaEntity(key.entries().items()), name, value) for key, values in everything.items() for name, value in values.items()
    } == {(key, name, value) for key, values in ours.describe_client_quotas().items() for name, value in values.items()}
    assert ours.alter_client_quotas([v.ClientQuotaAlteration(entity, {"producer_byte_rate": None})]).all() == {entity: None}
    assert error_of(lambda: ours.alter_client_quotas([v.ClientQuotaAlteration(entity, {"no_such": 1.0})])) == "INVALID_REQUEST"
    binding = v.AclBinding(v.ResourceType.TOPIC, TOPIC, "User:a", v.AclOperation.READ)
    assert error_of(lambda: ours.create_acls([binding])) == "SECURITY_DISABLED"
    assert error_of(ours.describe_acls) == "SECURITY_DISABLED"
    assert error_of(lambda: ours.delete_acls([v.AclBindingFilter(v.ResourceType.TOPIC)])) == "SECURITY_DISABLED"
    for ask, future in (
        (ours.create_delegation_token, theirs.admin.createDelegationToken().delegationToken()),
        (ours.describe_delegation_token, theirs.admin.describeDelegationToken().delegationTokens()),
        (lambda: ours.renew_delegation_token(b"x"), theirs.admin.renewDelegationToken(b"x").expiryTimestamp()),
        (lambda: ours.expire_delegation_token(b"x"), theirs.admin.expireDelegationToken(b"x").expiryTimestamp()),
    ):
        assert error_of(ask) == theirs.error(future)


def test_asyncio(bootstrap: str) -> None:
    async def main() -> tuple[Any, ...]:
        async with kops.aio.Admin(bootstrap_servers=bootstrap) as admin:
            found = await asyncio.gather(
                admin.describe_topics([TOPIC]), admin.list_offsets({KEY: OffsetSpec.latest()}), admin.describe_consumer_groups(["missing"])
            )
            return tuple(found)

    topics, offsets, groups = asyncio.run(main())
    assert len(topics[TOPIC].partitions) == 3
    assert offsets[KEY].offset >= 5
    assert groups.errors()["missing"].name == "GROUP_ID_NOT_FOUND"


def test_acls_tokens_and_controllers(oracle: Oracle, tmp_path: Path) -> None:
    """A node with an authorizer is asked through its broker's port and through its controller's (KIP-919)."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "delegation.token.secret.key": "secret",
    }
    binding = v.AclBinding(v.ResourceType.TOPIC, "t", "User:a", v.AclOperation.READ)
    prefixed = v.AclBinding(
        v.ResourceType.GROUP, "g-", "User:b", v.AclOperation.ALL, v.AclPermissionType.DENY, "127.0.0.1", v.PatternType.PREFIXED
    )
    vague = binding._replace(resource_type=v.ResourceType.ANY)
    with RealBroker(oracle, tmp_path / "run", log_dirs=[tmp_path / "disk"], settings=settings, heap="256m") as broker:
        controller = next(line for line in broker.properties.read_text().splitlines() if line.startswith("listeners=")).split(
            "CONTROLLER://"
        )[1]
        java = JavaAdmin(oracle, broker.bootstrap)
        with kops.Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert list(admin.create_acls([binding, vague, prefixed]).errors()) == [vague]
            found = until(admin.describe_acls, lambda found: len(found) == 2)
            assert set(found) == {binding, prefixed}
            every = oracle.java_class(f"{COMMON}.acl.AclBindingFilter").ANY
            theirs = java.all(java.admin.describeAcls(every).values().get())
            assert {
                (one.pattern().name(), one.pattern().patternType().name(), one.entry().principal(), one.entry().host()) for one in theirs
            } == {(one.name, one.pattern_type.name, one.principal, one.host) for one in found}
            assert admin.describe_acls(v.AclBindingFilter(principal="User:b", pattern_type=v.PatternType.MATCH, name="g-1")) == [prefixed]
            assert error_of(admin.create_delegation_token) == java.error(java.admin.createDelegationToken().delegationToken())
            assert admin.describe_cluster(include_authorized_operations=True).authorized_operations
        java.admin.close()
        with kops.Admin(bootstrap_controllers=controller) as admin:
            assert [(node.id, node.port) for node in admin.describe_cluster().nodes] == [(1, int(controller.rpartition(":")[2]))]
            assert admin.describe_metadata_quorum().leader_id == 1
            assert admin.describe_features().finalized_features
            assert set(admin.describe_acls()) == {binding, prefixed}
            changes = {ConfigResource.broker(1): [AlterConfigOp.set("log.cleaner.threads", "2")]}
            assert admin.incremental_alter_configs(changes, validate_only=True).errors() == {}
            assert admin.list_partition_reassignments() == {}
            deleted = admin.delete_acls([v.AclBindingFilter()])[v.AclBindingFilter()]
            assert {(one.binding, one.error) for one in deleted} == {(binding, None), (prefixed, None)}
            assert error_of(admin.list_topics) == "UNSUPPORTED_ENDPOINT_TYPE"
        quick = {"request.timeout.ms": 2000, "default.api.timeout.ms": 4000}
        with kops.Admin({"bootstrap.servers": controller, **quick}) as admin:
            assert error_of(admin.list_topics) == "UNSUPPORTED_VERSION"
        with kops.Admin({"bootstrap.controllers": broker.bootstrap, **quick}) as admin:
            assert error_of(admin.describe_cluster) == "MISMATCHED_ENDPOINT_TYPE"
