"""Both faces of the consumer on a node of kops: partitions, positions, groups, commits, errors, the end, and resources after it."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any
from unittest.mock import Mock

import pytest

import kops
import kops.aio
from kops import Consumer
from kops.client.consumer.errors import (
    CommitFailedError,
    ConsumerClosedError,
    InvalidGroupIdError,
    NoOffsetForPartitionError,
    OffsetOutOfRangeError,
    RecordDeserializationError,
    WakeupError,
)
from kops.client.consumer.faces.driving import ListenerError
from kops.client.consumer.records import ConsumerRecord, ConsumerRecords, OffsetAndMetadata, OffsetAndTimestamp
from kops.client.errors import KafkaTimeoutError
from kops.errors import UsageError
from kops.records.log_offsets import TopicPartition
from tests.support.patience import until, with_more_time

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "50",
    "group.consumer.heartbeat.interval.ms": "50",
    "log.retention.ms": "-1",  # the timestamps of some records are of 1970
}
PARTITIONS = [TopicPartition("many", index) for index in range(4)]

pytestmark = pytest.mark.usefixtures("nothing_is_left")


@pytest.fixture(scope="module")
def servers() -> Iterator[str]:
    with kops.Cluster(1, topics=["many:4", "one", "numbers", "shared:4"], config=CONFIG) as cluster:
        with kops.Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            for index in range(100):
                producer.send("many", b"%d" % index, partition=index % 4, timestamp=1000 + index)
                producer.send("shared", b"%d" % index, partition=index % 4)
            for index in range(20):
                producer.send("one", b"v%d" % index, key=b"k", headers=[("h", b"x"), ("n", None)], timestamp=1000 + index)
            for index, value in enumerate([b"1", b"2", b"x", b"4"]):
                producer.send("numbers", value, key=b"%d" % index)
        yield cluster.bootstrap_servers


def read(consumer: Consumer, count: int) -> list[ConsumerRecord]:
    """Poll until there are at least `count` records."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        found += consumer.poll(1)
        assert time.monotonic() < deadline, f"{len(found)} of {count} records"
    return found


class Listener:
    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition]]] = []

    def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
        self.calls.append(("assigned", keys))

    def on_partitions_revoked(self, keys: list[TopicPartition]) -> None:
        self.calls.append(("revoked", keys))

    def on_partitions_lost(self, keys: list[TopicPartition]) -> None:
        self.calls.append(("lost", keys))


def names(call: tuple[str, list[TopicPartition]]) -> tuple[str, list[int]]:
    return call[0], [key.partition for key in call[1]]


# assigned partitions


def test_reads_assigned_partitions_in_order(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=30) as consumer:
        consumer.assign(PARTITIONS)
        polls = [consumer.poll(30) for _ in range(4)]
        assert [len(one) for one in polls] == [30, 30, 30, 10]
        found = [record for one in polls for record in one]
        for index in range(4):
            assert [int(one.value) for one in found if one.partition == index] == list(range(index, 100, 4))
        assert polls[0].next_offsets()[PARTITIONS[0]].offset == 25
        assert polls[0].by_partition().keys() == set(polls[0].partitions())
        assert [consumer.position(key) for key in PARTITIONS] == [25] * 4
        assert consumer.current_lag(PARTITIONS[0]) == 0
        assert consumer.poll(0) == []


def test_a_record_has_all_fields(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, key_deserializer="string", value_deserializer=bytes.decode) as consumer:
        consumer.assign([("one", 0)])
        consumer.seek(("one", 0), 3)
        record = read(consumer, 1)[0]
    assert record == ConsumerRecord("one", 0, 3, 1003, "CreateTime", "k", "v3", (("h", b"x"), ("n", None)), 0, 1, 2)


def test_seek_pause_and_resume(servers: str) -> None:
    first, second = PARTITIONS[:2]
    with Consumer(bootstrap_servers=servers, max_poll_records=5, auto_offset_reset="earliest") as consumer:
        consumer.assign([first, second])
        consumer.seek(second, 20)
        consumer.pause([first])
        assert consumer.paused() == {first}
        assert [one.offset for one in read(consumer, 5)] == [20, 21, 22, 23, 24]
        assert consumer.poll(0.05) == []
        consumer.resume([first])
        assert [(one.partition, one.offset) for one in read(consumer, 5)] == [(0, offset) for offset in range(5)]
        consumer.pause([first])  # its records are fetched and kept
        assert consumer.poll(0) == []
        consumer.resume([first])
        assert [one.offset for one in consumer.poll(30)] == [5, 6, 7, 8, 9]
        consumer.seek_to_end([first])
        assert consumer.position(first) == 25
        consumer.seek_to_beginning()
        assert consumer.position(first) == consumer.position(second) == 0
        consumer.seek(first, OffsetAndMetadata(7, "", 0))  # validated with the leader first
        assert until(lambda: [one.offset for one in consumer.poll(1) if one.partition == 0])[0] == 7


def test_offsets_and_topics(servers: str) -> None:
    one = TopicPartition("one", 0)
    with Consumer(bootstrap_servers=servers) as consumer:
        assert consumer.beginning_offsets([one]) == {one: 0}
        assert consumer.end_offsets([one, PARTITIONS[3]]) == {one: 20, PARTITIONS[3]: 25}
        found = consumer.offsets_for_times({one: 1005})
        assert found == {one: OffsetAndTimestamp(5, 1005, 0)}
        assert consumer.offsets_for_times({one: 10**13}) == {one: None}
        assert [part.partition for part in consumer.partitions_for("many")] == [0, 1, 2, 3]
        assert {"many", "one"} <= consumer.list_topics().keys()
        assert consumer.partitions_for("many")[0].leader == 1
    with Consumer(bootstrap_servers=servers, allow_auto_create_topics=False) as consumer:
        assert consumer.partitions_for("absent") == []
        with pytest.raises(KafkaTimeoutError, match="partitions absent-0, absent-1, absent-2 and 1 more: not known after 300 ms"):
            consumer.end_offsets([("absent", number) for number in range(4)], timeout=0.3)


def test_resets(servers: str) -> None:
    one, fresh = TopicPartition("one", 0), TopicPartition("shared", 0)  # the records of the other topic are as old as the cluster
    for reset, key, offset in (("earliest", one, 0), ("latest", one, 20), ("by_duration:PT1H", fresh, 0)):
        with Consumer(bootstrap_servers=servers, auto_offset_reset=reset) as consumer:
            consumer.assign([key])
            consumer.poll(0)
            assert consumer.position(key) == offset
    with Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign([one])
        with pytest.raises(NoOffsetForPartitionError, match="one-0") as error:
            consumer.poll(10)
        assert error.value.partitions == (one,)
        consumer.seek(one, 100)
        with pytest.raises(OffsetOutOfRangeError, match="100 is out of range") as late:
            until(lambda: consumer.poll(1))
        assert late.value.offsets == {one: 100}
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([one])
        consumer.seek(one, 100)
        assert read(consumer, 1)[0].offset == 0


def test_a_bad_record_is_named_and_can_be_passed(servers: str) -> None:
    key = TopicPartition("numbers", 0)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", value_deserializer=int) as consumer:
        consumer.assign([key])
        assert [one.value for one in read(consumer, 2)] == [1, 2]
        for _ in range(2):  # repeatedly, until the program seeks
            with pytest.raises(RecordDeserializationError, match="value of numbers-0 at offset 2") as error:
                consumer.poll(10)
        assert (error.value.origin, error.value.partition, error.value.offset, error.value.value) == ("value", key, 2, b"x")
        assert consumer.position(key) == 2
        consumer.seek(key, 3)
        assert [one.value for one in read(consumer, 1)] == [4]


def test_iterating_gives_back_what_was_not_yielded(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([("one", 0)])
        for record in consumer:
            if record.offset == 4:
                assert consumer.position(("one", 0)) == 5
                break
        assert consumer.position(("one", 0)) == 5
        assert [one.offset for one in consumer.poll(30)] == list(range(5, 20))


def test_interceptors(servers: str) -> None:
    class Every:
        closed = 0

        def on_consume(self, records: ConsumerRecords) -> list[ConsumerRecord]:
            return [one._replace(value=one.value.upper()) for one in records]

        def close(self) -> None:
            self.closed += 1

    every = Every()
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", interceptor_classes=[every]) as consumer:
        consumer.assign([("one", 0)])
        assert consumer.poll(30)[0].value == b"V0"
    assert every.closed == 1


# calls that are not allowed


def test_wrong_use_is_explained(servers: str) -> None:
    with Consumer(bootstrap_servers=servers) as consumer:
        with pytest.raises(UsageError, match="nothing to poll"):
            consumer.poll()
        with pytest.raises(InvalidGroupIdError, match=r"group\.id"):
            consumer.subscribe(["one"])
        with pytest.raises(UsageError, match="is not a partition"):
            consumer.assign(["one"])  # type: ignore[list-item]
        with pytest.raises(UsageError, match="one-0 is not assigned"):
            consumer.seek(("one", 0), 0)
        consumer.assign([("one", 0)])
        for offset in (-1, 1 << 63):
            with pytest.raises(UsageError, match=r"allowed: 0 to 2\^63 - 1"):
                consumer.seek(("one", 0), offset)
        for wrong in (
            lambda: consumer.poll(-1),
            lambda: consumer.poll(None),  # type: ignore[arg-type]
            lambda: consumer.poll("1"),  # type: ignore[arg-type]
            lambda: consumer.close(-1),
            lambda: consumer.close(membership="stay"),
            lambda: consumer.offsets_for_times({("one", 0): 1 << 63}),
        ):
            with pytest.raises(UsageError, match="not allowed"):
                wrong()
        errors = []

        def other() -> None:
            try:
                consumer.pause([("one", 0)])
            except UsageError as error:
                errors.append(str(error))

        with consumer._use():
            thread = threading.Thread(target=other)
            thread.start()
            thread.join()
        assert errors == ["another thread uses this consumer; only wakeup may be called by several threads"]
    with pytest.raises(ConsumerClosedError):
        consumer.poll()
    consumer.close()
    with Consumer(bootstrap_servers=servers, group_id="wrong-use") as consumer:
        consumer.subscribe("one")
        with pytest.raises(UsageError, match="call unsubscribe before"):
            consumer.assign([("one", 0)])
        with pytest.raises(UsageError, match="no rebalance listener"):
            consumer.subscribe("one", listener=object())
        with pytest.raises(UsageError, match="is not the name of a topic"):
            consumer.subscribe(["one", ""])
        with pytest.raises(UsageError, match="allowed: a mapping of partitions to offsets"):
            consumer.commit([("one", 0)])  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "bootstrap.servers: missing"),
        ({"bootstrap_servers": "h:1", "enable_auto_commit": True}, "not allowed without group.id"),
        ({"bootstrap_servers": "h:1", "group_id": " "}, "group.id"),
        ({"bootstrap_servers": "h:1", "value_deserializer": "text"}, "no deserializer"),
        ({"bootstrap_servers": "h:1", "group_id": "g", "heartbeat_interval_ms": 50_000}, "less than session.timeout.ms=45000"),
        ({"bootstrap_servers": "h:1", "group_id": "g", "group_remote_assignor": "uniform"}, "group.remote.assignor"),
        ({"bootstrap_servers": "h:1", "group_protocol": "consumer", "session_timeout_ms": 1}, "session.timeout.ms"),
        ({"bootstrap_servers": "h:1", "partition_assignment_strategy": "best"}, "partition.assignment.strategy=best"),
        ({"bootstrap_servers": "h:1", "interceptor_classes": "a.b.C"}, "interceptor.classes=a.b.C"),
    ],
)
def test_wrong_settings_are_explained(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        Consumer(settings.pop("config", None), **settings)


def test_a_cluster_that_does_not_answer_is_reported_once(caplog: pytest.LogCaptureFixture) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound, but nobody listens
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        with Consumer(bootstrap_servers=address, group_id="g", reconnect_backoff_ms=10, reconnect_backoff_max_ms=10) as consumer:
            consumer.subscribe(["many"])
            until(lambda: consumer.poll(0.02) or caplog.records)
            assert not consumer.poll(0.3)  # many more attempts
    assert [one.message for one in caplog.records] == [f"{address}: no connection, trying again: Connection refused"]


def test_wakeup_ends_a_poll(servers: str) -> None:
    with Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([("one", 0)])
        consumer.position(("one", 0))
        timer = threading.Timer(0.1, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(60)
        timer.join()
        consumer.wakeup()  # counts for the next call
        with pytest.raises(WakeupError):
            consumer.poll(60)
        assert consumer.poll(0) == []
        consumer.seek(("one", 0), 10)
        assert len(read(consumer, 10)) == 10
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(60)
        assert consumer.position(("one", 0)) == 20  # the program has the records of the former poll


def test_an_interrupted_poll_loses_no_records(servers: str) -> None:
    class Interrupting:
        times = 1

        def on_consume(self, records: ConsumerRecords) -> ConsumerRecords:
            if self.times:
                self.times -= 1
                raise KeyboardInterrupt
            return records

    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", interceptor_classes=[Interrupting]) as consumer:
        consumer.assign([("one", 0)])
        with pytest.raises(KeyboardInterrupt):
            until(lambda: consumer.poll(1))
        assert consumer.position(("one", 0)) == 0
        assert len(read(consumer, 20)) == 20


# groups


def test_a_group_continues_at_its_commits(servers: str) -> None:
    key, listener = TopicPartition("one", 0), Listener()
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "commits", "auto_offset_reset": "earliest", "max_poll_records": 5}
    with Consumer(**settings, enable_auto_commit=False) as consumer:
        consumer.subscribe(["one"], listener)
        assert len(read(consumer, 5)) == 5
        assert consumer.committed([key]) == {key: None}
        consumer.commit()
        assert consumer.committed([key]) == {key: OffsetAndMetadata(5, "", 0)}
        assert len(read(consumer, 5)) == 5
        outcomes: list[Any] = []
        consumer.commit_async(on_commit=lambda offsets, error: outcomes.append((dict(offsets), error)))
        until(lambda: (consumer.poll(0.01) and False) or outcomes)
        assert outcomes == [({key: OffsetAndMetadata(10, "", 0)}, None)]
        consumer.commit({key: OffsetAndMetadata(8, "why", 0)})
        identity = consumer.group_metadata()
        assert (identity.group_id, identity.generation_id, identity.member_id != "") == ("commits", 1, True)
    assert [names(call) for call in listener.calls] == [("assigned", [0]), ("revoked", [0])]
    with Consumer(**settings) as consumer:
        assert consumer.committed([key]) == {key: OffsetAndMetadata(8, "why", 0)}
        consumer.subscribe("one")
        assert read(consumer, 5)[0].offset == 8
    with Consumer(**settings) as consumer:  # the previous one has committed at its end
        consumer.assign([key])
        assert read(consumer, 5)[0].offset == 13
        consumer.unsubscribe()
        assert consumer.assignment() == set()


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky", "consumer"])
def test_two_members_share_partitions(servers: str, strategy: str) -> None:
    settings: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": f"shared-{strategy}",
        "auto_offset_reset": "earliest",
    }
    if strategy == "consumer":
        settings["group_protocol"] = strategy
    else:
        settings |= {"heartbeat_interval_ms": 50, "partition_assignment_strategy": [strategy]}
    listeners = Listener(), Listener()
    with Consumer(**settings) as first:
        first.subscribe(["shared"], listeners[0])
        seen = [int(one.value) for one in read(first, 100)]
        with Consumer(**settings) as second:
            second.subscribe(["shared"], listeners[1])

            def is_shared() -> bool:
                for consumer in (first, second):
                    seen.extend(int(one.value) for one in consumer.poll(0.02))
                return len(first.assignment()) == len(second.assignment()) == 2

            until(is_shared)
            assert first.assignment() | second.assignment() == {TopicPartition("shared", index) for index in range(4)}
        until(lambda: (first.poll(0.02) and False) or len(first.assignment()) == 4)
    assert sorted(seen) == list(range(100))  # committed before the rebalance, so no record was read twice
    revoked = [len(keys) for name, keys in listeners[0].calls if name == "revoked"]
    assert revoked[0] == (4 if strategy == "range" else 2)
    assert {name for name, _ in listeners[0].calls} == {"assigned", "revoked"}


def test_a_pattern_and_a_change_of_the_subscription(servers: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "pattern", "auto_offset_reset": "earliest"}
    with Consumer(**settings) as consumer:
        consumer.subscribe(re.compile("on.|numb.*"))
        until(lambda: (consumer.poll(0.02) and False) or len(consumer.assignment()) == 2)
        assert consumer.subscription() == {"one", "numbers"}
        consumer.subscribe(re.compile("one"))
        until(lambda: (consumer.poll(0.02) and False) or consumer.assignment() == {TopicPartition("one", 0)})
        consumer.unsubscribe()
        consumer.subscribe(["numbers"])
        until(lambda: (consumer.poll(0.02) and False) or consumer.assignment() == {TopicPartition("numbers", 0)})


def test_a_pattern_of_the_broker(servers: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "re2", "auto_offset_reset": "earliest"}
    with Consumer(**settings, group_protocol="consumer") as consumer:
        consumer.subscribe(kops.SubscriptionPattern("on.|numb.*"))
        assert len(read(consumer, 24)) == 24
        assert consumer.assignment() == {TopicPartition("one", 0), TopicPartition("numbers", 0)}
        identity = consumer.group_metadata()
        assert identity.generation_id > 0
        consumer.commit()
        assert consumer.committed([("one", 0)]) == {TopicPartition("one", 0): OffsetAndMetadata(20, "", 0)}
        consumer.subscribe(kops.SubscriptionPattern("one"))
        until(lambda: (consumer.poll(0.02) and False) or consumer.assignment() == {TopicPartition("one", 0)})
    with Consumer(**settings) as consumer, pytest.raises(UsageError, match=r"only with group\.protocol=consumer"):
        consumer.subscribe(kops.SubscriptionPattern("one"))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_member_that_does_not_poll_leaves(servers: str, protocol: str) -> None:
    listener = Listener()
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": f"slow-{protocol}", "auto_offset_reset": "earliest"}
    settings["group_protocol"] = protocol
    with Consumer(**settings, max_poll_interval_ms=300) as slow:
        slow.subscribe(["one"], listener)
        assert read(slow, 1)
        with Consumer(**settings) as other:
            other.subscribe(["one"])
            until(lambda: (other.poll(0.02) and False) or other.assignment())  # while the first one does not poll
            with pytest.raises(CommitFailedError):
                slow.commit({("one", 0): 1}, timeout=60)
        until(lambda: (slow.poll(0.02) and False) or ("lost", [TopicPartition("one", 0)]) in listener.calls)


def test_a_commit_after_the_membership_fails_at_once(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not wait for the network, because nothing may come from there."""
    with Consumer(bootstrap_servers=servers, group_id="at-once", auto_offset_reset="earliest", max_poll_interval_ms=300) as slow:
        slow.subscribe(["one"])
        assert read(slow, 1)
        until(lambda: slow._core.commits.member.identity() is None)
        slow._stop.set()  # the thread in the background waits, too
        assert slow._thread is not None
        slow._thread.join()
        monkeypatch.setattr(slow, "_network", network := Mock(wraps=slow._network))
        with pytest.raises(CommitFailedError):
            slow.commit({("one", 0): 1}, timeout=120)
        assert not network.poll.called


def test_an_error_of_the_group_ends_the_poll(servers: str) -> None:
    """The error is there after an answer, and not when the poll has waited for records until its end."""
    settings: dict[str, Any] = {"bootstrap_servers": servers, "session_timeout_ms": 1000, "heartbeat_interval_ms": 500}
    words = r"session\.timeout\.ms=1000: the broker does not allow it; allowed: its group\.min\.session\.timeout\.ms to"

    async def main() -> None:
        async with kops.aio.Consumer(**settings, group_id="too-short-aio") as consumer:
            consumer.subscribe(["one"])
            with pytest.raises(kops.KafkaError, match=words):
                await consumer.poll(120)

    with Consumer(**settings, group_id="too-short") as consumer:
        consumer.subscribe(["one"])
        started = time.monotonic()
        with pytest.raises(kops.KafkaError, match=words):
            consumer.poll(120)
        assert time.monotonic() - started < 60
    asyncio.run(asyncio.wait_for(main(), 60))


def test_an_error_of_a_listener_comes_from_poll(servers: str) -> None:
    class Failing(Listener):
        def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
            super().on_partitions_assigned(keys)
            if keys:
                raise ValueError("no")

    listener = Failing()
    with Consumer(bootstrap_servers=servers, group_id="failing", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["one"], listener)
        with pytest.raises(ListenerError, match="on_partitions_assigned: ValueError"):
            until(lambda: consumer.poll(1))
        assert len(read(consumer, 20)) == 20  # the assignment is valid all the same
    assert [names(call) for call in listener.calls] == [("assigned", [0]), ("assigned", []), ("revoked", [0])]


def test_a_listener_may_not_make_the_calls_that_call_it(servers: str) -> None:
    refused: list[str] = []

    class Calling:
        def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
            for call in (consumer.poll, consumer.unsubscribe, consumer.close):
                with pytest.raises(UsageError, match="not in a rebalance listener") as error:
                    call()
                refused.append(str(error.value).split(":")[0])

    with Consumer(bootstrap_servers=servers, group_id="calling", auto_offset_reset="earliest") as consumer:
        consumer.subscribe(["one"], Calling())
        assert len(read(consumer, 20)) == 20
    assert refused == ["poll", "unsubscribe", "close"]


def test_a_listener_may_seek_and_commit(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, group_id="seeking", enable_auto_commit=False) as consumer:

        class Seeking(Listener):
            def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
                for key in keys:
                    consumer.seek(key, 15)

            def on_partitions_revoked(self, keys: list[TopicPartition]) -> None:
                consumer.commit()

        consumer.subscribe(["one"], Seeking())
        assert read(consumer, 5)[0].offset == 15
    with Consumer(bootstrap_servers=servers, group_id="seeking") as consumer:
        assert consumer.committed([("one", 0)])[TopicPartition("one", 0)] == OffsetAndMetadata(20, "", 0)


def test_a_poll_without_records_sleeps(servers: str) -> None:
    for settings in ({}, {"group_id": "idle"}):
        with Consumer(bootstrap_servers=servers, **settings) as consumer:
            if settings:
                consumer.subscribe("one")
            else:
                consumer.assign([("one", 0)])
            turns: list[float] = []
            turn = consumer._core.turn

            def counted(now_ms: float, *, in_poll: bool, turn: Any = turn, turns: list[float] = turns) -> Any:
                turns.append(now_ms)
                return turn(now_ms, in_poll=in_poll)

            consumer._core.turn = counted  # type: ignore[method-assign]
            assert until(lambda: consumer.poll(0.2) == [] and consumer.assignment())  # called at once
            turns.clear()
            assert consumer.poll(0.3) == []
            assert len(turns) < 15  # answers to Fetch, metadata, heartbeats


def test_nothing_is_left_after_failures_and_many_ends(servers: str) -> None:
    """The fixture compares descriptors and threads before and after."""
    for _ in range(20):
        Consumer(bootstrap_servers=servers, group_id="ends").close()
    with pytest.raises(UsageError):
        Consumer(bootstrap_servers="host:port", group_id="ends")
    consumer = Consumer(bootstrap_servers="127.0.0.1:1", group_id="ends")
    consumer.subscribe(["one"])
    assert consumer.poll(0.05) == []

    def commit(timeout_s: float) -> str:
        with pytest.raises(KafkaTimeoutError) as error:
            consumer.commit({("one", 0): 1}, timeout=timeout_s)
        return str(error.value)

    assert "127.0.0.1:1" in with_more_time(0.05, commit, lambda told: "127.0.0.1:1" in told)
    consumer.close(0.2)


# asyncio


def test_asyncio_reads_partitions(servers: str) -> None:
    async def main() -> None:
        async with kops.aio.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=30) as consumer:
            consumer.assign(PARTITIONS)
            found = [record for _ in range(4) for record in await consumer.poll(30)]
            for index in range(4):
                assert [int(one.value) for one in found if one.partition == index] == list(range(index, 100, 4))
            assert [await consumer.position(key) for key in PARTITIONS] == [25] * 4
            assert await consumer.poll(0) == []
            assert await consumer.end_offsets(PARTITIONS[:1]) == {PARTITIONS[0]: 25}
            assert await consumer.beginning_offsets(PARTITIONS[:1]) == {PARTITIONS[0]: 0}
            assert await consumer.offsets_for_times({PARTITIONS[1]: 1002}) == {PARTITIONS[1]: OffsetAndTimestamp(1, 1005, 0)}
            assert len(await consumer.partitions_for("many")) == 4
            assert "one" in await consumer.list_topics()
            consumer.seek(PARTITIONS[0], 20)
            async for record in consumer:
                if record.offset == 22:
                    break
            assert await consumer.position(PARTITIONS[0]) == 23
            assert [one.offset for one in await consumer.poll(30)] == [23, 24]
            turns: list[float] = []
            turn = consumer._core.turn

            def counted(now_ms: float, *, in_poll: bool) -> Any:
                turns.append(now_ms)
                return turn(now_ms, in_poll=in_poll)

            consumer._core.turn = counted  # type: ignore[method-assign]
            assert await consumer.poll(0.3) == []
            assert len(turns) < 30  # a poll without records sleeps

    asyncio.run(main())


def test_asyncio_cancelled_polls_lose_nothing(servers: str) -> None:
    async def main() -> None:
        async with kops.aio.Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", max_poll_records=7) as consumer:
            consumer.assign([("one", 0)])
            offsets: list[int] = []
            deadline = time.monotonic() + 60
            while len(offsets) < 20 and time.monotonic() < deadline:
                task = asyncio.create_task(consumer.poll(60))
                await asyncio.sleep(0)
                task.cancel()
                await asyncio.wait([task])
                if not task.cancelled():
                    offsets += [one.offset for one in task.result()]
                offsets += [one.offset for one in await consumer.poll(0.01)]
            assert offsets == list(range(20))
            task = asyncio.create_task(consumer.poll(60))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="another task polls"):
                await consumer.poll(1)
            consumer.wakeup()
            with pytest.raises(WakeupError):
                await task

    asyncio.run(main())


def test_asyncio_a_listener_may_not_make_the_calls_that_call_it(servers: str) -> None:
    refused: list[str] = []

    async def main() -> None:
        class Calling:
            async def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
                for call in (consumer.poll, consumer.unsubscribe, consumer.close):
                    with pytest.raises(UsageError, match="not in a rebalance listener") as error:
                        await call()
                    refused.append(str(error.value).split(":")[0])

        async with kops.aio.Consumer(bootstrap_servers=servers, group_id="calling-aio", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["one"], Calling())
            while not await consumer.poll(1):
                pass

    asyncio.run(main())
    assert refused == ["poll", "unsubscribe", "close"]


def test_asyncio_group(servers: str) -> None:
    settings: dict[str, Any] = {"bootstrap_servers": servers, "group_id": "asyncio", "auto_offset_reset": "earliest"}
    calls: list[tuple[str, int]] = []

    class Coroutines:
        async def on_partitions_assigned(self, keys: list[TopicPartition]) -> None:
            await asyncio.sleep(0)
            calls.append(("assigned", len(keys)))

        async def on_partitions_revoked(self, keys: list[TopicPartition]) -> None:
            calls.append(("revoked", len(keys)))

    async def main() -> None:
        async with kops.aio.Consumer(**settings) as consumer:
            consumer.subscribe(["one"], Coroutines())
            async for record in consumer:
                if record.offset == 9:
                    break
            await consumer.commit()
            assert await consumer.committed([("one", 0)]) == {TopicPartition("one", 0): OffsetAndMetadata(10, "", 0)}
            await consumer.unsubscribe()
            consumer.subscribe(["one"])
            assert (await consumer.__anext__()).offset == 10
            outcomes: list[Any] = []
            consumer.commit_async({("one", 0): 15}, lambda offsets, error: outcomes.append(error))
        assert outcomes == [None]
        with pytest.raises(ConsumerClosedError):
            await consumer.poll()

    asyncio.run(main())
    assert calls == [("assigned", 1), ("revoked", 1)]
