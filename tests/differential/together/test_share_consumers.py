"""Kafka's own share consumers at a kops node and at a real Kafka 4.3.0 node: they get the same records, equally often."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.share_consumers import ShareConsumer, configure_group, until
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes.kops_nodes import KopsNodes

SETTINGS = {
    "share.coordinator.state.topic.num.partitions": 1,
    "group.share.min.heartbeat.interval.ms": 500,
    "group.share.heartbeat.interval.ms": 500,
    "group.share.assignment.interval.ms": 0,
    "group.share.min.record.lock.duration.ms": 1000,
    "group.share.record.lock.duration.ms": 30_000,
    # A node that was killed may register again after this time.
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
}
EARLIEST = {"share.auto.offset.reset": "earliest"}
pytestmark = pytest.mark.slow


class Place:
    """One of the two nodes. Its topics and groups have the names of the tests."""

    def __init__(self, oracle: Oracle, node: KopsNodes | RealBroker) -> None:
        self.oracle = oracle
        self._node = node

    @property
    def bootstrap(self) -> str:
        """Return the node's address."""
        return self._node.bootstrap

    def crash(self) -> None:
        """Kill the node with kill -9."""
        if isinstance(self._node, RealBroker):
            self._node.kill()
        else:
            self._node.kill(1)

    def revive(self) -> None:
        """Start it again on the same directories."""
        if isinstance(self._node, RealBroker):
            self._node.start()
        else:
            self._node.start(1)
            self._node.wait(1)

    def prepare(self, name: str, count: int, *, settings: dict[str, str] | None = None, per_batch: int = 2) -> None:
        """Make a topic with records, and set the options of a group of the same name."""
        self.oracle.create_topic(self.bootstrap, name)
        self.produce(name, count, per_batch=per_batch)
        configure_group(self.oracle, self.bootstrap, name, EARLIEST | (settings or {}))

    def produce(self, name: str, count: int, **more: Any) -> None:
        """Write records 0, 1, …"""
        self.oracle.produce(self.bootstrap, name, 0, [(None, b"%d" % number) for number in range(count)], **more)

    def member(self, name: str, **settings: object) -> ShareConsumer:
        """Return a member that reads the topic."""
        told = {key.replace("_", "."): value for key, value in settings.items()}
        return ShareConsumer(self.oracle, self.bootstrap, name, name, told)


@pytest.fixture(scope="module")
def both(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    """Provide a kops node and a Kafka node, each as a separate cluster."""
    work = tmp_path_factory.mktemp("both")
    with (
        KopsNodes(work / "kops", 1, settings=SETTINGS) as nodes,
        RealBroker(oracle, work / "kafka", log_dirs=[work / "kafka-logs"], settings=SETTINGS) as broker,
    ):
        yield Place(oracle, nodes), Place(oracle, broker)


def kinds(place: Place) -> Any:
    """Accept, reject, release and renew records."""
    place.prepare("kinds", 6, per_batch=3)
    with place.member("kinds") as member:
        first = until(member, bool)
        member.acknowledge(first[0], "ACCEPT")
        member.acknowledge(first[1], "REJECT")
        for each in first[2:5]:
            member.acknowledge(each, "RELEASE")
        member.acknowledge(first[5], "RENEW")
        errors = [member.commit()]
        second = until(member, bool)
        for each in second:
            member.acknowledge(each, "ACCEPT")
        errors.append(member.commit())
        return [each.seen for each in first], [each.seen for each in second], errors, member.lock_ms


def sharing(place: Place) -> Any:
    """Two members of one group share a partition, two records at a time. One leaves without acknowledging its records."""
    place.prepare("sharing", 6)
    limited = {"share_acquire_mode": "record_limit", "max_poll_records": 2}
    with place.member("sharing", **limited) as first:
        one = until(first, bool)
        with place.member("sharing", **limited) as second:
            two = until(second, bool)
            for each in one:
                first.acknowledge(each, "ACCEPT")
            errors = first.commit()
            three = until(first, bool)
        # The second one has left. Its records are delivered again.
        for each in three:
            first.acknowledge(each, "ACCEPT")
        four = until(first, lambda found: bool(found) and found[0].delivery_count == 2)
        return [[each.seen for each in part] for part in (one, two, three, four)], errors


def forgetting(place: Place) -> Any:
    """A member that acknowledges nothing loses its records. They are delivered again until they reach the delivery limit."""
    place.prepare("forgetting", 2, settings={"share.record.lock.duration.ms": "1000", "share.delivery.count.limit": "2"})
    seen = []
    with place.member("forgetting") as first, place.member("forgetting") as second:
        found = until(first, bool)
        seen.append([each.seen for each in found])
        again = until(second, bool)
        seen.append([each.seen for each in again])
        for each in found:
            first.acknowledge(each, "ACCEPT")
        late = first.commit()  # others have them now
        place.produce("forgetting", 1)
        last = until(first, bool)
        seen.append([each.seen for each in last])
    return seen, late


def committed(place: Place) -> Any:
    """A group that reads committed records gets nothing of aborted transactions."""
    place.oracle.create_topic(place.bootstrap, "committed")
    configure_group(place.oracle, place.bootstrap, "committed", EARLIEST | {"share.isolation.level": "read_committed"})
    place.produce("committed", 2, settings={"transactional.id": "t1"})
    jvm = place.oracle.jvm
    serializer = "org.apache.kafka.common.serialization.StringSerializer"
    settings = {
        "bootstrap.servers": place.bootstrap,
        "transactional.id": "t2",
        "key.serializer": serializer,
        "value.serializer": serializer,
    }
    producer = jvm.org.apache.kafka.clients.producer.KafkaProducer(place.oracle.properties(settings))
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(jvm.org.apache.kafka.clients.producer.ProducerRecord("committed", "aborted"))
    producer.flush()
    producer.abortTransaction()
    producer.close()
    place.produce("committed", 1)
    seen: list[Any] = []
    with place.member("committed") as member:
        while len(seen) < 3:
            found = until(member, bool)
            seen += [each.seen for each in found]
            for each in found:
                member.acknowledge(each, "ACCEPT")
        return seen, member.commit()


def tools(place: Place) -> Any:
    """Return the output of kafka-console-share-consumer, and the position of the group afterwards."""
    place.prepare("tools", 4)
    kafka = KafkaTools(place.oracle)
    read = ("--bootstrap-server", place.bootstrap, "--topic", "tools", "--group", "tools")
    first = kafka.run("console-share-consumer", *read, "--max-messages", "2", "--formatter-property", "print.offset=true")
    rest = kafka.run("console-share-consumer", *read, "--max-messages", "2", "--reject", "--formatter-property", "print.delivery=true")
    place.produce("tools", 1)
    last = kafka.run("console-share-consumer", *read, "--max-messages", "1", "--release")
    return first, rest, last


def programs(place: Place) -> Any:
    """Return the output of kafka-verifiable-share-consumer in each of its modes and of kafka-share-consumer-perf-test, with figures masked,
    and the positions of their groups afterwards.
    """
    kafka = KafkaTools(place.oracle)
    server, told = ("--bootstrap-server", place.bootstrap), []
    for mode in ("auto", "sync", "async"):
        name = f"verifiable-{mode}"
        place.prepare(name, 4)
        asked = ("--topic", name, "--group-id", name, "--max-messages", "4", "--acknowledgement-mode", mode, "--verbose")
        told.append(kafka.run("verifiable-share-consumer", *server, *asked))
    place.prepare("measured", 8)
    measured = ("--topic", "measured", "--group", "measured", "--num-records", "8", "--timeout", "20000", "--threads", "1")
    told.append(kafka.run("share-consumer-perf-test", *server, *measured))
    names = ("verifiable-auto", "verifiable-sync", "verifiable-async", "measured")
    return [masked(text) for text in told], [kafka.run("share-groups", *server, "--describe", "--group", name) for name in names]


def masked(text: str) -> str:
    """Mask times, rates and sizes."""
    return re.sub(r"\d{4}-\d\d-\d\d [\d:]+|\d+\.\d+|(?<=\"timestamp\":)\d+|(?<=, )\d+$", "#", text, flags=re.MULTILINE)


def crashing(place: Place) -> Any:
    """The node is killed. When it comes back, it knows the acknowledgements. Records that were only acquired are delivered as for the first
    time.
    """
    place.prepare("crashing", 6, per_batch=6)
    member = place.member("crashing")
    found = until(member, bool)
    for each, kind in zip(found, ("ACCEPT", "RELEASE", "REJECT", "RELEASE"), strict=False):
        member.acknowledge(each, kind)
    errors = member.commit()
    place.crash()
    member.abandon()
    place.revive()
    seen: list[Any] = []
    with place.member("crashing") as again:
        while len(seen) < 4:
            new = until(again, bool)
            seen += [each.seen for each in new]
            for each in new:
                again.acknowledge(each, "ACCEPT")
        return [each.seen for each in found], errors, seen, again.commit()


CASES: dict[str, Callable[[Place], Any]] = {
    case.__name__: case for case in (kinds, sharing, forgetting, committed, tools, programs, crashing)
}


@pytest.mark.parametrize("case", CASES)
def test_members(both: tuple[Place, Place], case: str) -> None:
    kops, kafka = (CASES[case](place) for place in both)
    assert kops == kafka
