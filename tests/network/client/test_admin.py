"""The admin client on nodes of kops: every method of both faces, threads and tasks at once, time-outs, and resources after the end."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

import kops
import kops.aio
from kops import admin as values
from kops.admin import (
    AlterConfigOp,
    ConfigResource,
    ConfigResourceType,
    ElectionType,
    FeatureUpdate,
    GroupState,
    GroupType,
    NewPartitions,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
    Results,
    TopicPartition,
    TopicPartitionReplica,
)
from kops.client.errors import (
    AdminClosedError,
    GroupIdNotFoundError,
    InvalidTopicError,
    KafkaError,
    KafkaTimeoutError,
    TopicExistsError,
    UnknownTopicIdError,
    UnknownTopicOrPartitionError,
    UnsupportedVersionError,
)
from kops.errors import UsageError
from tests.support.patience import until, with_more_time


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    small = {f"{name}.num.partitions": "1" for name in ("offsets.topic", "transaction.state.log", "share.coordinator.state.topic")}
    small["log.retention.ms"] = "-1"  # the timestamps of the records are of 1970
    with kops.Cluster(2, topics=["orders:3"], config=small) as cluster:
        with kops.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for number in range(6):
                producer.send("orders", b"%d" % number, partition=number % 2, timestamp=1000 + number)
        yield cluster.bootstrap_servers


@pytest.fixture(scope="module")
def shared(servers: str) -> Iterator[kops.Admin]:
    with kops.Admin(bootstrap_servers=servers) as admin:
        yield admin


class TestTopics:
    def test_created_listed_described_and_deleted(self, shared: kops.Admin) -> None:
        created = shared.create_topics(
            [NewTopic("one", 2, 2, configs={"retention.ms": "5000"}), NewTopic("assigned", replicas_assignments={0: [2], 1: [1]})]
        )
        assert created["one"].num_partitions == 2
        assert created["one"].replication_factor == 2
        configs = created["one"].configs
        assert configs is not None
        assert configs["retention.ms"].value == "5000"
        assert not configs["retention.ms"].is_default
        until(shared.list_topics, lambda found: {"one", "assigned"} <= set(found))
        described = until(lambda: shared.describe_topics(["one", "assigned", "missing"]), lambda found: len(found.errors()) == 1)
        assert [[node.id for node in one.replicas] for one in described["assigned"].partitions] == [[2], [1]]
        assert described["one"].topic_id == created["one"].topic_id
        with pytest.raises(UnknownTopicOrPartitionError):
            described["missing"]
        by_id = shared.describe_topics([created["one"].topic_id, "AAAAAAAAAAAAAAAAAAAAAQ"], by_id=True)
        assert by_id[created["one"].topic_id].name == "one"
        assert isinstance(by_id.errors()["AAAAAAAAAAAAAAAAAAAAAQ"], UnknownTopicIdError)
        assert shared.delete_topics(["assigned"]).all() == {"assigned": None}
        assert shared.delete_topics([created["one"].topic_id], by_id=True).all() == {created["one"].topic_id: None}
        gone = until(shared.list_topics, lambda found: not {"one", "assigned"} & set(found))
        assert not {"one", "assigned"} & set(gone)

    def test_each_name_has_its_outcome(self, shared: kops.Admin) -> None:
        outcomes = shared.create_topics([NewTopic("orders"), NewTopic("not allowed"), NewTopic("checked", 1)], validate_only=True)
        assert list(outcomes) == ["orders", "not allowed", "checked"]
        assert isinstance(outcomes.errors()["orders"], TopicExistsError)
        assert isinstance(outcomes.errors()["not allowed"], InvalidTopicError)
        assert list(outcomes.succeeded()) == ["checked"]
        with pytest.raises(TopicExistsError):
            outcomes.all()
        assert "checked" not in shared.list_topics()

    def test_more_partitions(self, shared: kops.Admin) -> None:
        shared.create_topics([NewTopic("grows", 1, 1)]).all()
        found = until(
            lambda: shared.create_partitions({"grows": NewPartitions(2, [[2]]), "missing": 3}), lambda found: len(found.errors()) == 1
        )
        assert isinstance(found.errors()["missing"], UnknownTopicOrPartitionError)
        described = until(lambda: shared.describe_topics(["grows"]).all(), lambda found: len(found["grows"].partitions) == 2)
        assert [node.id for node in described["grows"].partitions[1].replicas] == [2]

    def test_pages_of_a_description(self, shared: kops.Admin) -> None:
        shared.create_topics([NewTopic("long", 7, 1), NewTopic("after", 3, 1)]).all()
        ask = lambda: shared.describe_topics(["long", "after", "orders", "missing"], partition_size_limit_per_response=2)  # noqa: E731
        found = until(ask, lambda found: len(found.errors()) == 1)
        assert {name: len(one.partitions) for name, one in found.succeeded().items()} == {"long": 7, "after": 3, "orders": 3}
        assert [one.partition for one in found["long"].partitions] == list(range(7))

    def test_wrong_arguments(self, shared: kops.Admin) -> None:
        with pytest.raises(UsageError, match="not an id"):
            shared.describe_topics(["orders"], by_id=True)
        with pytest.raises(UsageError, match="timeout=-1"):
            shared.list_topics(timeout=-1)
        with pytest.raises(TypeError):
            shared.list_topics(no_such=1)  # type: ignore[call-arg]


class TestCluster:
    def test_nodes_and_features(self, shared: kops.Admin) -> None:
        cluster = shared.describe_cluster(include_fenced_brokers=True, include_authorized_operations=True)
        assert [node.id for node in cluster.nodes] == [1, 2]
        assert cluster.controller in cluster.nodes
        assert not any(node.is_fenced for node in cluster.nodes)
        features = shared.describe_features(node_id=2)
        assert features.finalized_features["metadata.version"].max_version >= 1
        found = shared.update_features({"metadata.version": FeatureUpdate(10_000)}, validate_only=True)
        assert found.errors()["metadata.version"].name == "INVALID_UPDATE_VERSION"
        with pytest.raises(KafkaError) as caught:
            shared.unregister_broker(99)
        assert caught.value.name == "BROKER_ID_NOT_REGISTERED"

    def test_quorum(self, shared: kops.Admin) -> None:
        quorum = shared.describe_metadata_quorum()
        assert quorum.leader_id in {one.replica_id for one in quorum.voters}
        with pytest.raises(KafkaError):
            shared.remove_raft_voter(99, "AAAAAAAAAAAAAAAAAAAAAQ")
        with pytest.raises(KafkaError):
            shared.add_raft_voter(99, "AAAAAAAAAAAAAAAAAAAAAQ", [values.RaftVoterEndpoint("CONTROLLER", "127.0.0.1", 1)])

    def test_settings(self, shared: kops.Admin) -> None:
        topic, broker = ConfigResource.topic("orders"), ConfigResource.broker(1)
        changes = {topic: [AlterConfigOp.set("retention.ms", "7")], broker: [AlterConfigOp.set("log.cleaner.threads", "2")]}
        assert shared.incremental_alter_configs(changes, validate_only=True).errors() == {}
        assert shared.incremental_alter_configs({topic: [AlterConfigOp.set("retention.ms", "8000")]}).all() == {topic: None}
        ask = lambda: shared.describe_configs([topic, broker], include_synonyms=True, include_documentation=True)  # noqa: E731
        found = until(ask, lambda found: found[topic]["retention.ms"].value == "8000")
        assert found[topic]["retention.ms"].synonyms[0].source is values.ConfigSource.DYNAMIC_TOPIC_CONFIG
        assert found[broker]["node.id"].value == "1"
        assert topic in shared.list_config_resources([ConfigResourceType.TOPIC])
        bad = shared.incremental_alter_configs({topic: [AlterConfigOp.set("retention.ms", "soon")]})
        assert bad.errors()[topic].name == "INVALID_CONFIG"

    def test_replicas(self, shared: kops.Admin) -> None:
        key = TopicPartition("orders", 0)
        dirs = shared.describe_log_dirs([1, 2])
        owner = next(broker for broker in (1, 2) for one in dirs[broker].values() if key in one.replica_infos)
        replica = TopicPartitionReplica("orders", 0, owner)
        place = shared.describe_replica_log_dirs([replica])[replica]
        assert place.current_replica_log_dir in dirs[owner]
        assert shared.alter_replica_log_dirs({replica: str(place.current_replica_log_dir)}).all() == {replica: None}
        assert shared.list_partition_reassignments() == {}
        cancelled = shared.alter_partition_reassignments({key: None})
        assert cancelled.errors()[key].name == "NO_REASSIGNMENT_IN_PROGRESS"
        elected = shared.elect_leaders(ElectionType.PREFERRED, [key])
        assert elected.errors()[key].name == "ELECTION_NOT_NEEDED"
        shared.create_topics([NewTopic("moves", 1, replicas_assignments={0: [1]})]).all()
        moved = TopicPartition("moves", 0)
        until(lambda: shared.alter_partition_reassignments({moved: [2]}), lambda found: not found.errors())
        ask = lambda: shared.describe_topics(["moves"]).all()["moves"].partitions[0].replicas  # noqa: E731
        assert [node.id for node in until(ask, lambda found: [node.id for node in found] == [2])] == [2]


class TestOffsets:
    def test_every_spec(self, shared: kops.Admin) -> None:
        first, second, empty = (TopicPartition("orders", number) for number in range(3))

        def offsets(spec: OffsetSpec) -> list[int]:
            return [one.offset for one in shared.list_offsets(dict.fromkeys((first, second, empty), spec)).all().values()]

        assert offsets(OffsetSpec.latest()) == [3, 3, 0]
        assert offsets(OffsetSpec.earliest()) == [0, 0, 0]
        assert offsets(OffsetSpec.max_timestamp()) == [2, 2, -1]
        assert offsets(OffsetSpec.for_timestamp(1003)) == [2, 1, -1]
        assert offsets(OffsetSpec.earliest_local()) == [0, 0, 0]
        assert offsets(OffsetSpec.latest_tiered()) == [-1, -1, -1]
        committed = shared.list_offsets({first: OffsetSpec.latest()}, isolation_level="read_committed")
        assert committed[first].offset == 3

    def test_a_topic_that_is_not_there(self, shared: kops.Admin) -> None:
        there, missing, beyond = TopicPartition("orders", 0), TopicPartition("missing", 0), TopicPartition("orders", 99)
        found = shared.list_offsets({there: OffsetSpec.latest(), missing: OffsetSpec.latest()})
        assert found[there].offset == 3
        assert isinstance(found.errors()[missing], UnknownTopicOrPartitionError)
        # As in Kafka, a partition that no broker knows may still appear.
        asked = {beyond: OffsetSpec.latest(), there: OffsetSpec.earliest()}
        late = with_more_time(0.3, lambda timeout: shared.list_offsets(asked, timeout=timeout), lambda late: there not in late.errors())
        assert late[there].offset == 0
        assert isinstance(late.errors()[beyond], KafkaTimeoutError)

    def test_records_are_deleted(self, servers: str, shared: kops.Admin) -> None:
        key = TopicPartition("trimmed", 0)
        shared.create_topics([NewTopic("trimmed", 1, 1)]).all()
        with kops.Producer(bootstrap_servers=servers) as producer:
            for _ in range(4):
                producer.send("trimmed", b"x", partition=0)
        assert shared.delete_records({key: 3}).all() == {key: 3}
        assert shared.list_offsets({key: OffsetSpec.earliest()})[key].offset == 3
        assert shared.delete_records({key: 99}).errors()[key].name == "OFFSET_OUT_OF_RANGE"


class TestGroups:
    def test_offsets_make_a_group(self, shared: kops.Admin) -> None:
        key, other = TopicPartition("orders", 0), TopicPartition("orders", 1)
        with pytest.raises(UsageError, match="offset=-1: not allowed"):
            shared.alter_consumer_group_offsets("simple", {key: -1})
        given: dict[TopicPartition, OffsetAndMetadata | int] = {key: 2, other: OffsetAndMetadata(1, "note")}
        altered = shared.alter_consumer_group_offsets("simple", given)
        assert altered.all() == {key: None, other: None}
        listed = shared.list_groups(types=[GroupType.CLASSIC], group_states=["empty"]).all()
        assert [one.group_id for one in listed if one.is_simple_consumer_group] == ["simple"]
        assert shared.list_groups(protocol_types=["connect"]).all() == []
        described = shared.describe_consumer_groups(["simple", "missing"])
        assert described["simple"].is_simple_consumer_group
        assert described["simple"].group_state is GroupState.EMPTY
        assert isinstance(described.errors()["missing"], GroupIdNotFoundError)
        assert shared.describe_classic_groups(["simple"])["simple"].members == ()
        offsets = shared.list_consumer_group_offsets({"simple": None, "missing": [key]}).all()
        assert offsets == {
            "simple": {key: kops.OffsetAndMetadata(2), other: OffsetAndMetadata(1, "note")},  # the consumer's class
            "missing": {key: None},
        }
        assert shared.list_streams_group_offsets({"simple": [key]}, require_stable=True)["simple"] == {key: OffsetAndMetadata(2)}
        assert shared.delete_consumer_group_offsets("simple", [key]).all() == {key: None}
        assert shared.remove_members_from_consumer_group("simple").all() == {}
        removed = shared.remove_members_from_consumer_group("simple", ["instance"])
        assert removed.errors()["instance"].name == "UNKNOWN_MEMBER_ID"
        assert shared.delete_consumer_groups(["simple", "missing"]).succeeded() == {"simple": None}

    def test_other_kinds(self, shared: kops.Admin) -> None:
        key = TopicPartition("orders", 0)
        for found in (
            shared.describe_share_groups(["missing"]),
            shared.describe_streams_groups(["missing"]),
            shared.delete_share_groups(["missing"]),
            shared.delete_streams_groups(["missing"]),
        ):
            assert isinstance(found.errors()["missing"], GroupIdNotFoundError)
        shared.alter_share_group_offsets("missing", {key: 1})
        shared.list_share_group_offsets({"missing": None})
        for delete in (
            lambda: shared.delete_share_group_offsets("nobody", ["orders"]),
            lambda: shared.delete_consumer_group_offsets("nobody", [key]),
            lambda: shared.delete_streams_group_offsets("nobody", [key]),
        ):
            with pytest.raises(GroupIdNotFoundError):
                delete()
        assert shared.alter_streams_group_offsets("streams", {key: 1}).all() == {key: None}

    def test_transactions(self, shared: kops.Admin) -> None:
        fenced = shared.fence_producers(["txn-a", "txn-b"])
        assert fenced["txn-a"].producer_id != fenced["txn-b"].producer_id
        listed = {one.transactional_id: one for found in shared.list_transactions().all().values() for one in found}
        assert listed["txn-a"].producer_id == fenced["txn-a"].producer_id
        assert not any(shared.list_transactions(transactional_id_pattern="no-.*").all().values())
        described = shared.describe_transactions(["txn-a", "missing"])
        assert described["txn-a"].state is values.TransactionState.EMPTY
        assert described.errors()["missing"].name == "TRANSACTIONAL_ID_NOT_FOUND"
        shared.force_terminate_transaction("txn-a")
        assert shared.describe_transactions(["txn-a"])["txn-a"].producer_epoch == fenced["txn-a"].epoch + 1
        key = TopicPartition("orders", 0)
        (producer,) = shared.describe_producers([key])[key]
        assert producer.current_transaction_start_offset is None
        with pytest.raises(KafkaError):
            shared.abort_transaction(values.AbortTransactionSpec(key, producer.producer_id, -5, 0))


def test_wrong_arguments_are_explained_and_harm_no_other_call(shared: kops.Admin) -> None:
    topic = ConfigResource.topic("orders")
    number: Any = 5000
    wrong: list[tuple[Any, str]] = [
        (lambda: shared.create_topics([NewTopic("wrong", configs={"retention.ms": number})]), "retention.ms=5000: not a text"),
        (lambda: shared.create_topics(["wrong"]), "'wrong' is not a new topic"),  # type: ignore[list-item]
        (lambda: shared.incremental_alter_configs({topic: [AlterConfigOp.set("retention.ms", number)]}), "retention.ms=5000: not a text"),
        (lambda: shared.incremental_alter_configs({topic: {"retention.ms": "5"}}), "'retention.ms' is not a change of a setting"),  # type: ignore[dict-item]
        (lambda: shared.describe_topics([number]), "5000 is not a name"),
        (lambda: shared.delete_topics(["a\udcff"]), r"'a\udcff' is not a name; allowed: text that UTF-8 can encode"),
        (lambda: shared.create_topics([NewTopic("a\udcff")]), r"'a\udcff' is not a name"),
        (lambda: shared.delete_consumer_groups(["a\udcff"]), r"'a\udcff' is not a name"),
        (lambda: shared.list_consumer_group_offsets({"a\udcff": None}), r"'a\udcff' is not a name"),
        (lambda: shared.alter_consumer_group_offsets("a\udcff", {("orders", 0): 0}), r"'a\udcff' is not a name"),
        (lambda: shared.alter_consumer_group_offsets("a", {("\udcff", 0): 0}), r"('\udcff', 0) is not a partition"),
        (lambda: shared.delete_records({"orders": number}), "'orders' is not a partition; allowed: TopicPartition or a pair"),  # type: ignore[arg-type]
        (lambda: shared.delete_records([("orders", 0)]), "[('orders', 0)] is not a mapping; allowed: {('topic', 0): …}"),  # type: ignore[arg-type]
        (lambda: shared.list_offsets({("orders", 0): "latest"}), "'latest' is not an offset; allowed: OffsetSpec"),  # type: ignore[arg-type]
        (lambda: shared.describe_producers(["orders"]), "'orders' is not a partition"),  # type: ignore[list-item]
        (lambda: shared.elect_leaders("preferred"), "'preferred' is not a kind of election"),  # type: ignore[arg-type]
        (lambda: shared.describe_configs([("topic", "orders")]), "('topic', 'orders') is not a resource"),  # type: ignore[list-item]
        (lambda: shared.incremental_alter_configs({"orders": []}), "'orders' is not a resource"),  # type: ignore[dict-item]
        (lambda: shared.list_consumer_group_offsets("billing"), "'billing' is not a mapping; allowed: {'group': None}"),  # type: ignore[arg-type]
    ]
    for ask, words in wrong:
        with pytest.raises(UsageError, match=re.escape(words)):
            ask()
    with pytest.raises(KafkaError, match="CreateTopicsRequest can't be written"):
        shared.create_topics([NewTopic("wrong", "2")]).all()  # type: ignore[arg-type]
    assert list(shared.describe_topics("orders").all()) == ["orders"]
    assert list(shared.delete_topics("missing").errors()) == ["missing"]
    assert list(shared.describe_consumer_groups("missing").errors()) == ["missing"]


def test_a_partition_may_be_a_pair(shared: kops.Admin) -> None:
    """Of a topic and a number, as for a consumer."""
    pair, key = ("orders", 0), TopicPartition("orders", 0)
    assert shared.list_offsets({pair: OffsetSpec.earliest()})[key].offset >= 0
    assert list(shared.delete_records({pair: 0}).all()) == [key]
    assert list(shared.describe_producers([pair, key])) == [key]
    assert list(shared.elect_leaders(values.ElectionType.PREFERRED, [pair])) == [key]
    assert list(shared.alter_partition_reassignments({pair: None})) == [key]
    assert shared.list_partition_reassignments([pair]) == {}
    assert shared.alter_consumer_group_offsets("pairs", {pair: 0}).all() == {key: None}
    assert shared.list_consumer_group_offsets({"pairs": [pair]})["pairs"][key] == OffsetAndMetadata(0)
    assert shared.delete_consumer_group_offsets("pairs", [pair]).all() == {key: None}


def test_users_and_quotas_of_kops(shared: kops.Admin) -> None:
    """kops has no authorizer, no users and no quotas. The client's requests for them are tested with Apache Kafka."""
    assert shared.describe_user_scram_credentials().all() == {}
    assert shared.describe_client_quotas() == {}
    credential = values.UserScramCredentialUpsertion("u", values.ScramMechanism.SCRAM_SHA_256, "secret")
    with pytest.raises(UnsupportedVersionError):
        shared.alter_user_scram_credentials([credential])
    for ask in (shared.describe_acls, shared.describe_delegation_token):
        with pytest.raises(UnsupportedVersionError):
            ask()


class TestFaces:
    def test_many_threads_use_one_client(self, servers: str) -> None:
        found: list[Any] = []
        with kops.Admin(bootstrap_servers=servers) as admin:
            ask = lambda: found.append(admin.describe_topics(["orders"]).all())  # noqa: E731
            threads = [threading.Thread(target=ask) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert len(found) == 8
        assert all(len(one["orders"].partitions) == 3 for one in found)

    def test_many_tasks_use_one_client(self, servers: str) -> None:
        async def main() -> tuple[Any, ...]:
            async with kops.aio.Admin({"bootstrap.servers": servers}) as admin:
                found = await asyncio.gather(
                    admin.list_topics(),
                    admin.list_offsets({TopicPartition("orders", 0): OffsetSpec.latest()}),
                    admin.list_groups(),
                    admin.describe_cluster(),
                )
                return tuple(found)

        topics, offsets, groups, cluster = asyncio.run(main())
        assert "orders" in topics
        assert offsets.all()[TopicPartition("orders", 0)].offset == 3
        assert groups.errors == {}
        assert len(cluster.nodes) == 2

    def test_nobody_is_there(self, nowhere: str) -> None:
        with kops.Admin(bootstrap_servers=nowhere) as admin:

            def ask(timeout_s: float) -> str:
                began = time.monotonic()
                with pytest.raises(KafkaTimeoutError) as error:
                    admin.list_topics(timeout=timeout_s)
                assert time.monotonic() - began >= timeout_s
                return str(error.value)

            assert nowhere in with_more_time(0.3, ask, lambda told: nowhere in told)
            with pytest.raises(KafkaTimeoutError):
                admin.list_groups(timeout=0.1).all()

    def test_a_cancelled_call_leaves_nothing(self, nowhere: str) -> None:
        async def main() -> None:
            async with kops.aio.Admin(bootstrap_servers=nowhere) as admin:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(admin.list_topics(), 0.1)
                with pytest.raises(KafkaTimeoutError):
                    await admin.list_topics(timeout=0.1)
            with pytest.raises(AdminClosedError):
                await admin.list_topics()

        asyncio.run(main())

    def test_ctrl_c_gives_a_call_up(self, nowhere: str) -> None:
        with kops.Admin(bootstrap_servers=nowhere) as admin:
            main = threading.get_ident()

            def interrupt() -> None:
                until(lambda: admin._running.operations, bool)
                signal.pthread_kill(main, signal.SIGINT)

            thread = threading.Thread(target=interrupt)
            thread.start()
            with pytest.raises(KeyboardInterrupt):
                admin.list_topics()
            thread.join(60)
            assert until(lambda: not admin._running.operations, bool)

    def test_the_end_of_a_client_ends_its_calls(self, nowhere: str) -> None:
        admin = kops.Admin(bootstrap_servers=nowhere)
        errors: list[BaseException] = []

        def ask() -> None:
            try:
                admin.list_topics()
            except KafkaError as error:
                errors.append(error)

        thread = threading.Thread(target=ask)
        thread.start()
        until(lambda: admin._running.operations, bool)
        admin.close(0.05)
        thread.join(60)
        assert [type(error) for error in errors] == [AdminClosedError]
        with pytest.raises(AdminClosedError):
            admin.list_topics()
        admin.close()

    def test_nothing_is_left(self, servers: str) -> None:
        def held() -> tuple[int, int]:
            names = []
            for fd in os.listdir("/proc/self/fd"):
                with suppress(FileNotFoundError):  # that of the listing itself
                    names.append(os.readlink(f"/proc/self/fd/{fd}"))
            return names.count("anon_inode:[eventpoll]"), sum(one.name.startswith("kops-adminclient") for one in threading.enumerate())

        async def cycle() -> None:
            async with kops.aio.Admin(bootstrap_servers=servers) as admin:
                await admin.describe_cluster()

        before = held()
        for _ in range(10):
            with kops.Admin(bootstrap_servers=servers) as admin:
                admin.describe_cluster()
            asyncio.run(cycle())
            kops.Admin(bootstrap_servers=servers).close()
        assert held() == before

    def test_settings(self) -> None:
        for wrong, text in (
            ({}, "bootstrap.servers: missing"),
            ({"bootstrap.servers": "a:1", "bootstrap.controllers": "b:1"}, "exclude each other"),
            ({"bootstrap.servers": "a:1", "default.api.timeout.ms": 10}, "request.timeout.ms"),
            ({"bootstrap.servers": "a"}, None),
        ):
            if text is None:
                kops.Admin(wrong).close()
            else:
                with pytest.raises(UsageError, match=text):
                    kops.Admin(wrong)

    def test_both_faces_have_the_same_methods(self) -> None:
        def methods(face: type) -> dict[str, str | None]:
            return {name: value.__doc__ for name, value in vars(face).items() if not name.startswith("_") and name != "close"}

        assert methods(kops.Admin) == methods(kops.aio.Admin)
        assert len(methods(kops.Admin)) >= 58


def test_results() -> None:
    results: Results[str, int] = Results({"a": 1, "b": KafkaError("broken")})
    assert results["a"] == 1
    assert "b" in results
    assert dict(results.map(str).succeeded()) == {"a": "1"}
    with pytest.raises(KafkaError, match="broken"):
        results["b"]
    with pytest.raises(KeyError):
        results["c"]
