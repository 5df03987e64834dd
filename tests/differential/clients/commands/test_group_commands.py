"""`kops group` on Apache Kafka 4.3.0 and on kops, compared with Kafka's consumer-groups and groups tools."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from confluent_kafka import Producer

from kops.cli.main import main
from kops.cluster.questions import client_of
from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.messages import ConsumerGroupHeartbeatRequest
from tests.cli.conftest import Ran
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.streams_scenarios import StreamsMember
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes.kops_nodes import KopsNodes

Kops = Callable[..., Ran]
Tool = Callable[..., str]
pytestmark = pytest.mark.slow
HOUR_MS = 3_600_000


class Served(NamedTuple):
    """A broker, and the place of its files."""

    bootstrap: str
    log_dir: Path


@pytest.fixture(scope="module", params=["kafka", "kops"])
def served(request: pytest.FixtureRequest, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Provide one broker of Kafka and one of kops, each with two topics with records."""
    folder = tmp_path_factory.mktemp(request.param)
    kops = request.param == "kops"
    with KopsNodes(folder, 1) if kops else RealBroker(oracle, folder / "run", log_dirs=[folder / "d1"]) as started:
        address: str = started.bootstrap
        oracle.create_topic(address, "orders", partitions=3)
        oracle.create_topic(address, "other")
        oracle.create_topic(address, "timed", partitions=2, config={"retention.ms": "-1"})
        for partition, count in ((0, 30), (1, 20)):
            oracle.produce(address, "orders", partition, [(b"k", b"v%d" % number) for number in range(count)])
        oracle.produce(address, "other", 0, [(b"k", b"v")] * 5)
        yield Served(address, started.log_dir(1) if isinstance(started, KopsNodes) else folder / "d1")


@pytest.fixture(scope="module")
def bootstrap(served: Served) -> str:
    """Provide the broker's address."""
    return served.bootstrap


@pytest.fixture
def on(bootstrap: str, capsysbinary: pytest.CaptureFixture[bytes]) -> Kops:
    def run(*arguments: str, code: int = 0) -> Ran:
        ended = main([*arguments, "-b", bootstrap])
        captured = capsysbinary.readouterr()
        ran = Ran(ended, captured.out, captured.err.decode())
        assert ran.code == code, ran.text + ran.err
        return ran

    return run


@pytest.fixture
def tool(oracle: Oracle, bootstrap: str) -> Tool:
    tools = KafkaTools(oracle)
    return lambda name, *arguments: tools.run(name, "--bootstrap-server", bootstrap, *arguments)


def serves(bootstrap: str, request: Message) -> bool:
    """Return whether the broker has this API."""
    with client_of(bootstrap, timeout_ms=10_000) as client:
        try:
            client.call("asked", 1, lambda _: request, lambda _: None)
        except ApiError as error:
            return error.name != "UNSUPPORTED_VERSION"
    return True


@pytest.fixture(scope="module")
def members(oracle: Oracle, bootstrap: str) -> Iterator[dict[str, str]]:
    """Provide groups with one member each, by protocol. All members have read everything and committed it."""
    consumers = []
    groups = {"classic": "live-classic"}
    if serves(bootstrap, ConsumerGroupHeartbeatRequest(group_id="asked", member_id="nobody", member_epoch=1)):
        groups["consumer"] = "live-consumer"
    for protocol, group in groups.items():
        settings = {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "group.protocol": protocol,
            "group.instance.id": f"instance-{protocol}",
            "client.id": "the-client",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": "false",
            **{f"{part}.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer" for part in ("key", "value")},
        }
        consumer = oracle.java_class("org.apache.kafka.clients.consumer.KafkaConsumer")(oracle.properties(settings))
        consumers.append(consumer)
        consumer.subscribe(oracle.java_class("java.util.List").of("orders"))
        deadline = time.monotonic() + 60
        while sum(int(consumer.position(each)) for each in consumer.assignment()) < 50:
            consumer.poll(oracle.java_class("java.time.Duration").ofMillis(100))
            assert time.monotonic() < deadline
        consumer.commitSync()
    yield groups
    for consumer in consumers:
        consumer.close()


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.text.splitlines()]


def table(text: str) -> list[list[str]]:
    """Return the rows of a table of Kafka's, without its heading: the lines after the first line in capitals, split into words."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    start = next(
        (number for number, line in enumerate(lines) if line[0] in ("GROUP", "TOPIC", "TransactionalId", "ProducerId")), len(lines)
    )
    return sorted(lines[start + 1 :])


def words(row: dict[str, Any], *names: str) -> list[str]:
    return ["-" if row[name] is None else str(row[name]) for name in names]


def set_offsets(tool: Tool, group: str, *arguments: str) -> None:
    text = tool("consumer-groups", "--reset-offsets", "--group", group, "--execute", *arguments)
    assert "Error" not in text, text


# Groups ---------------------------------------------------------------------------------------------------------------------------------


def test_groups_are_listed_and_described(on: Kops, tool: Tool, members: dict[str, str]) -> None:
    set_offsets(tool, "alone", "--topic", "orders:0,1", "--to-offset", "7")
    listed = rows(on("group", "list", "--format", "jsonl"))
    theirs = table(tool("groups", "--list"))
    assert sorted([row["group"], row["type"], row["protocol"] or ""] for row in listed) == [[*line, ""][:3] for line in theirs]
    empty = rows(on("group", "list", "--state", "empty", "--type", "classic", "--format", "jsonl"))
    assert [row["group"] for row in empty if row["group"] == "alone"] == ["alone"]
    names = ["alone", *members.values()]
    offsets = []
    for name in names:
        offsets += table(tool("consumer-groups", "--describe", "--group", name))
    documents = {one["group"]: one for one in rows(on("group", "describe", *names, "--format", "jsonl"))}
    columns = ("topic", "partition", "offset", "end_offset", "lag", "member", "host", "client_id")
    ours = [[name, *words(row, *columns)] for name in names for row in documents[name]["offsets"]]
    assert sorted(ours) == sorted(offsets)
    for name in names:
        states = table(tool("consumer-groups", "--describe", "--group", name, "--state"))
        [state] = [line for line in states if line[0] == name]
        one = documents[name]
        host, number = one["coordinator"].split(" ")[1].strip("()"), one["coordinator"].split(" ")[0]
        assert state == [
            name,
            host,
            f"({number})",
            *([one["assignor"]] if one["assignor"] else ["-"]),
            one["state"],
            str(one["member_count"]),
        ]
    for name in members.values():
        [line] = table(tool("consumer-groups", "--describe", "--group", name, "--members", "--verbose"))
        [member] = documents[name]["members"]
        assert line[:6] == [
            name,
            member["member"],
            member["instance_id"],
            member["host"],
            member["client_id"],
            str(member["partition_count"]),
        ]
        assert line[6] == ("-" if member["epoch"] is None else str(member["epoch"]))
        assert line[7] == "orders:" + ",".join(each.rpartition("-")[2] for each in member["assignment"])
    assert on("group", "describe", "alone").err == "alone: no active members\n"
    assert on("group", "describe", "alone", "--members").text == ""


def test_a_group_that_is_not_there(on: Kops) -> None:
    for command in (("describe", "none"), ("lag", "none"), ("delete", "none")):
        assert "none" in on("group", *command, code=3).err
    on("group", "delete", "none", "--if-exists")
    assert "no committed offsets" in on("group", "export", "none", code=3).err
    on("group", "describe", code=2)
    on("group", "describe", "none", "--all-groups", code=2)
    on("group", "list", "--state", "Sleeping", code=2)


def test_lag(on: Kops, tool: Tool, members: dict[str, str]) -> None:
    set_offsets(tool, "behind", "--topic", "orders", "--to-offset", "10")
    set_offsets(tool, "behind", "--topic", "other", "--to-offset", "1")
    found = rows(on("group", "lag", "behind", "--format", "jsonl"))
    assert [words(row, "topic", "partitions", "lag", "max_lag", "max_partition", "unknown") for row in found] == [
        ["orders", "3", "30", "20", "0", "0"],
        ["other", "1", "4", "4", "0", "0"],
    ]
    on("group", "lag", "behind", "--max", "30")
    assert "30 records of orders behind" in on("group", "lag", "behind", "--max", "29", code=1).err


RESETS = (
    ("--to-earliest",),
    ("--to-latest",),
    ("--to-current",),
    ("--to-offset", "25"),
    ("--shift-by", "-3"),
    ("--shift-by", "100"),
    ("--to-datetime", "2020-01-01T00:00:00.000"),
    ("--to-datetime", "2099-01-01T00:00:00.000"),
    ("--by-duration", "P1000D"),
    ("--by-duration", "PT0S"),
)
SCOPES = (("--all-topics",), ("--topic", "orders", "--topic", "other:0"), ("--topic", "orders:0,1"))


@pytest.mark.parametrize(("target", "scope"), list(zip(RESETS, cycle(SCOPES), strict=False)), ids=" ".join)
def test_offsets_are_reset_as_kafkas_tool_does(on: Kops, tool: Tool, target: tuple[str, ...], scope: tuple[str, ...]) -> None:
    group = "reset"
    set_offsets(tool, group, "--topic", "orders:0,1", "--to-offset", "7")
    if target[0] == "--shift-by":
        set_offsets(tool, group, "--topic", "orders:2", "--to-offset", "0")
        set_offsets(tool, group, "--topic", "other", "--to-offset", "3")
    theirs = sorted(csv_lines(tool("consumer-groups", "--reset-offsets", "--group", group, *scope, *target, "--dry-run", "--export")))
    assert theirs
    before = on("group", "export", group).text
    ran = on("group", "reset", group, *scope, *target, "--export")
    assert sorted(ran.text.splitlines()) == theirs
    assert on("group", "export", group).text == before
    planned = rows(on("group", "reset", group, *scope, *target, "--execute", "--format", "jsonl"))
    assert sorted(",".join(words(row, "topic", "partition", "new_offset")) for row in planned) == theirs
    assert {*theirs} <= {*on("group", "export", group).text.splitlines()}
    on("group", "delete", group)


TIMES = (
    ("--to-datetime", "2024-05-01T12:00:00.000"),
    ("--to-datetime", "2024-05-01T12:00:00.001Z"),
    ("--to-datetime", "2024-05-01T14:00:00.000+02:00"),
    ("--to-datetime", "2024-05-01T06:30:00.000-0530"),
    ("--to-datetime", "2024-05-01T14:30:00.250+02"),
    ("--by-duration", "P1DT2H3M4.005S"),
    ("--by-duration", "PT90M"),
    ("--by-duration", "pt-36h"),
    ("--by-duration", "-P-2DT+12H"),
    ("--by-duration", "PT0.5S"),
)


def test_times_mean_the_same_as_to_kafkas_tool(on: Kops, tool: Tool, bootstrap: str) -> None:
    """Each hour on the day has a record, and so has each of the last 60 hours, so that another time is another offset."""
    noon, now = 1_714_564_800_000, int(time.time() * 1000) - HOUR_MS // 3
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    for partition, times in enumerate(
        ([noon + hour * HOUR_MS for hour in range(-12, 12)], [now - hour * HOUR_MS for hour in range(60, 0, -1)])
    ):
        for timestamp in times:
            producer.produce("timed", b"v", partition=partition, timestamp=timestamp)
    assert producer.flush(60) == 0
    found = set()
    for target in TIMES:
        set_offsets(tool, "timed", "--topic", "timed", "--to-offset", "1")
        theirs = sorted(
            csv_lines(tool("consumer-groups", "--reset-offsets", "--group", "timed", "--topic", "timed", *target, "--dry-run", "--export"))
        )
        assert len(theirs) == 2, target
        assert sorted(on("group", "reset", "timed", "--topic", "timed", *target, "--export").text.splitlines()) == theirs, target
        found.add(tuple(theirs))
    assert len(found) == 6
    on("group", "delete", "timed")


def csv_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if re.fullmatch(r"[\w.-]+,\d+,\d+", line)]


def test_offsets_go_to_a_file_and_back(on: Kops, tool: Tool, tmp_path: Path, served: Served) -> None:
    for number, group in enumerate(("file-a", "file-b")):
        set_offsets(tool, group, "--topic", "orders", "--to-offset", str(5 + number))
    one, both = tmp_path / "one.csv", tmp_path / "both.csv"
    one.write_text(on("group", "export", "file-a").text)
    both.write_text(on("group", "export", "file-a", "file-b").text)
    assert one.read_text() == "orders,0,5\norders,1,5\norders,2,0\n"
    for group in ("file-a", "file-b"):
        set_offsets(tool, group, "--topic", "orders", "--to-latest")
    assert "nothing was changed" in on("group", "import", str(one), "--group", "file-a").err
    assert on("group", "export", "file-a").text == "orders,0,30\norders,1,20\norders,2,0\n"
    on("group", "import", str(both), "--execute")
    assert on("group", "export", "file-a", "file-b").text == both.read_text()
    # The broker's files give the same offsets.
    assert main(["log", "offsets", "--as", "reset-csv", "--group", "file-b", "-o", str(tmp_path / "offline"), str(served.log_dir)]) == 0
    assert (tmp_path / "offline").read_text() == on("group", "export", "file-b").text
    # Kafka's tool and kops read each other's files.
    set_offsets(tool, "file-a", "--from-file", str(one))
    theirs = tool("consumer-groups", "--reset-offsets", "--group", "file-a", "--all-topics", "--to-current", "--dry-run", "--export")
    assert sorted(csv_lines(theirs)) == one.read_text().splitlines()
    assert on("group", "import", str(one), code=1).err.startswith("kops: error:")  # the group is not named
    one.write_text("orders,0,999\norders,9,1\n")
    assert "no such partition: orders-9" in on("group", "import", str(one), "--group", "file-a", code=3).err
    one.write_text("orders,0,999\n")
    assert "orders-0: offset 999 is higher than the latest; 30 is used" in on("group", "import", str(one), "--group", "file-a").err


def test_a_group_with_members_keeps_its_offsets(on: Kops, tool: Tool, members: dict[str, str]) -> None:
    for group in members.values():
        ran = on("group", "reset", group, "--topic", "orders", "--to-earliest", "--execute", code=1)
        assert "offsets can only be reset if the group is inactive, but its state is Stable" in ran.err
        assert "is inactive, but the current state is Stable" in tool(
            "consumer-groups", "--reset-offsets", "--group", group, "--topic", "orders", "--to-earliest", "--execute"
        )
        assert "NON_EMPTY_GROUP" in on("group", "delete", group, code=1).err
        assert "GROUP_SUBSCRIBED_TO_TOPIC" in on("group", "delete-offsets", group, "--topic", "orders", code=1).err
    on("group", "reset", "x", "--topic", "orders", code=2)
    on("group", "reset", "x", "--topic", "orders", "--all-topics", "--to-latest", code=2)
    on("group", "reset", "x", "--topic", "orders", "--to-latest", "--to-earliest", code=2)
    assert "no such topic: nothing" in on("group", "reset", "x", "--topic", "nothing", "--to-latest", code=3).err
    assert "no such partition: orders-7" in on("group", "reset", "x", "--topic", "orders:7", "--to-latest", code=3).err


def test_offsets_and_groups_are_deleted(on: Kops, tool: Tool) -> None:
    set_offsets(tool, "going", "--topic", "orders", "--to-offset", "3")
    set_offsets(tool, "going", "--topic", "other", "--to-offset", "1")
    done = rows(on("group", "delete-offsets", "going", "--topic", "orders:0,2", "--topic", "other", "--format", "jsonl"))
    assert [words(row, "topic", "partition", "error") for row in done] == [["orders", "0", "-"], ["orders", "2", "-"], ["other", "0", "-"]]
    assert [line[1:4] for line in table(tool("consumer-groups", "--describe", "--group", "going"))] == [["orders", "1", "3"]]
    on("group", "delete", "going")
    assert "going" not in tool("groups", "--list")


def test_a_group_is_watched(on: Kops, tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    set_offsets(tool, "watched", "--topic", "other", "--to-offset", "1")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 2:
            raise KeyboardInterrupt
        set_offsets(tool, "watched", "--topic", "other", "--to-offset", "4")

    # Only in the command: other threads of this process sleep, too.
    monkeypatch.setattr("kops.cli.commands.group.choosing.time", SimpleNamespace(sleep=pause))
    ran = on("group", "describe", "watched", "--watch", "2.5", "--format", "csv", code=130)
    assert pauses == [2.5, 2.5]
    assert [line.split(",")[4] for line in ran.text.splitlines() if line.startswith("watched")] == ["1", "4"]


def test_a_share_group_is_described(on: Kops, oracle: Oracle, tool: Tool, bootstrap: str) -> None:
    settings = {
        "bootstrap.servers": bootstrap,
        "group.id": "shared",
        **{f"{part}.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer" for part in ("key", "value")},
    }
    consumer = oracle.java_class("org.apache.kafka.clients.consumer.KafkaShareConsumer")(oracle.properties(settings))
    consumer.subscribe(oracle.java_class("java.util.List").of("orders"))
    deadline = time.monotonic() + 60
    while True:
        consumer.poll(oracle.java_class("java.time.Duration").ofMillis(200))
        [one] = rows(on("group", "describe", "shared", "--format", "jsonl"))
        if one["members"] and len(one["members"][0]["assignment"]) == 3 and len(one["offsets"]) == 3:
            break
        assert time.monotonic() < deadline
    assert (one["type"], one["state"], one["protocol"]) == ("Share", "Stable", "share")
    theirs = table(tool("share-groups", "--describe", "--group", "shared"))
    ours = [["shared", *words(row, "topic", "partition", "offset", "lag")] for row in one["offsets"]]
    assert sorted(ours) == [line[:5] for line in theirs]
    consumer.close()


def test_a_streams_group_is_described(on: Kops, bootstrap: str) -> None:
    member = StreamsMember(bootstrap, "streaming", source="orders")
    member.join()
    [one] = rows(on("group", "describe", "streaming", "--format", "jsonl"))
    assert (one["type"], one["state"], one["protocol"], one["member_count"]) == ("Streams", "Stable", "streams", 1)
    parts = [f"{topic}-{number}" for topic in ("app-count-repartition", "orders") for number in range(3)]
    assert one["members"][0]["assignment"] == one["members"][0]["target_assignment"] == parts
    assert [(row["topic"], row["end_offset"]) for row in one["offsets"]][3:] == [("orders", 30), ("orders", 20), ("orders", 0)]
    assert [row["group"] for row in rows(on("group", "list", "--type", "streams", "--format", "jsonl"))] == ["streaming"]
    assert "its state is Stable" in on("group", "reset", "streaming", "--to-earliest", "--topic", "orders", code=1).err
    member.leave()
    [one] = rows(on("group", "describe", "streaming", "--format", "jsonl"))
    assert (one["state"], one["members"]) == ("Empty", [])
    on("group", "reset", "streaming", "--to-earliest", "--topic", "orders", "--execute")
    [lag] = rows(on("group", "lag", "streaming", "--format", "jsonl"))
    assert (lag["topic"], lag["lag"]) == ("orders", 50)
    on("group", "delete", "streaming")
    on("group", "describe", "streaming", code=3)
