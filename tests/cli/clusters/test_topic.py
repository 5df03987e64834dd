"""`kops topic`, `kops partition` and `kops quorum` on a cluster of kops: answers, formats, exit codes, files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.client.leaders.offsets import list_offsets
from kops.client.offsets import LATEST
from kops.cluster.embedded import Cluster
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.questions import client_of
from kops.records.log_offsets import TopicPartition
from tests.cli.clusters.conftest import Kops
from tests.cli.conftest import PROJECT, Ran, kops_process


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as made:
        yield made


@pytest.fixture
def topic(on: Kops, request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide a topic with three partitions."""
    name = "t-" + "".join(letter if letter.isalnum() else "-" for letter in request.node.name)
    on("topic", "create", name, "--partitions", "3", "--replication-factor", "2")
    yield name
    on("topic", "delete", name, "--if-exists")


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.text.splitlines()]


def described(on: Kops, topic: str, holds: Callable[[Any], object]) -> Any:
    """Describe a topic until a condition holds: the broker that is asked may not have replayed a change yet."""
    deadline = time.monotonic() + 60
    while True:
        (document,) = json.loads(on("topic", "describe", topic, "--format", "json").text)["topics"]
        if holds(document) or time.monotonic() > deadline:
            return document
        time.sleep(0.05)


def write(tmp_path: Path, text: str) -> str:
    path = tmp_path / "input"
    path.write_text(text)
    return str(path)


def test_topics_are_made_listed_described_and_deleted(on: Kops) -> None:
    ran = on(
        "topic", "create", "life", "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=5000", "--format", "json"
    )
    (made,) = json.loads(ran.text)["topics"]
    assert (made["topic"], made["partitions"], made["replication_factor"], made["error"]) == ("life", 2, 1, None)
    assert made["configs"] == {"retention.ms": "5000"}
    (listed,) = rows(on("topic", "list", "life", "--format", "jsonl"))
    assert listed["topic_id"] == made["topic_id"]
    assert listed["schema"] == "kops.topics/v1"
    (document,) = json.loads(on("topic", "describe", "li.e", "--format", "json").text)["topics"]
    assert [one["partition"] for one in document["partitions"]] == [0, 1]
    assert document["overrides"] == {"retention.ms": "5000"}
    text = on("topic", "describe", "--topic", "life").text
    assert text.splitlines()[0].split() == ["TOPIC", "PARTITIONS", "REPLICAS", "ID", "SETTINGS"]
    assert "retention.ms=5000" in text
    failed = on("topic", "create", "life", code=1).err
    assert (failed.startswith("kops: error: life: "), failed.endswith("(TOPIC_ALREADY_EXISTS)\n")) == (True, True)
    assert on("topic", "create", "life", "live", code=1).err.startswith("kops: warning: life: ")
    on("topic", "delete", "live")
    assert on("topic", "create", "life", "--if-not-exists").err == "life already exists\n"
    on("topic", "delete", "life")
    on("topic", "delete", "life", code=3)
    assert on("topic", "delete", "life", "--if-exists").err == "life does not exist\n"


def test_what_a_regular_expression_finds_is_deleted_only_when_that_is_meant(on: Kops) -> None:
    on("topic", "create", "many-1", "many-2")
    assert "--yes deletes them" in on("topic", "delete", "many-.*", code=3).err
    assert [row["topic"] for row in rows(on("topic", "delete", "many-.*", "-n", "--format", "jsonl"))] == ["many-1", "many-2"]
    on("topic", "delete", "many-.*", "--yes")
    assert on("topic", "list", "--format", "jsonl").text == ""


def test_partitions_and_settings_change(on: Kops, topic: str) -> None:
    on("topic", "alter", topic, "--partitions", "4", "--config", "segment.ms=60000", "--config", "retention.ms=1000")
    on("topic", "alter", topic, "--delete-config", "retention.ms")
    document = described(on, topic, lambda found: (found["partition_count"], found["overrides"]) == (4, {"segment.ms": "60000"}))
    assert (document["partition_count"], document["overrides"]) == (4, {"segment.ms": "60000"})
    assert "INVALID_PARTITIONS" in on("topic", "alter", topic, "--partitions", "2", code=1).err
    assert "INVALID_CONFIG" in on("topic", "alter", topic, "--config", "no.such=1", code=1).err
    assert on("topic", "describe", "--topics-with-overrides", "--format", "csv").text.count(topic) == 4


def test_records_there_and_back(on: Kops, topic: str, tmp_path: Path) -> None:
    lines = "".join(f"k{number}\t{number}\n" for number in range(50)) + "gone\t\n"
    ran = on(
        "topic", "produce", topic, write(tmp_path, lines), "-K", "\\t", "--null-marker", "", "-H", "h=1", "-z", "zstd", "--format", "jsonl"
    )
    assert sum(row["records"] for row in rows(ran)) == 51
    records = rows(on("topic", "consume", topic, "--from-beginning", "-e", "--key-encoding", "utf8", "--value-encoding", "utf8", "--batch"))
    assert {record["key"]: record["value"] for record in records} == {**{f"k{number}": str(number) for number in range(50)}, "gone": None}
    assert {record["schema"] for record in records} == {"kops.record/v1"}
    assert {tuple(map(tuple, record["headers"])) for record in records} == {(("h", "1"),)}
    assert {record["batch"]["codec"] for record in records} == {"zstd"}
    assert list(records[0]) == [
        "schema", "offset", "timestamp", "tsType", "key", "value", "headers", "leaderEpoch", "topic", "partition", "batch",
    ]  # fmt: skip
    ranges = rows(on("topic", "offsets", topic, "--format", "jsonl"))
    assert sum(row["count"] for row in ranges) == 51
    last = {row["partition"]: row["end_offset"] for row in ranges}
    tail = rows(on("topic", "consume", topic, "--partition", "0-1", "--offset", "-2", "-e"))
    assert sorted((record["partition"], record["offset"]) for record in tail) == [
        (partition, last[partition] - left) for partition in (0, 1) for left in (2, 1)
    ]
    assert len(rows(on("topic", "consume", topic, "--from-beginning", "--max-messages", "7"))) == 7
    assert on("topic", "consume", topic, "--timeout-ms", "0").text == ""


def test_what_was_consumed_can_be_produced(on: Kops, topic: str, tmp_path: Path) -> None:
    on("topic", "produce", topic, write(tmp_path, "a=1\nb=2\nc=\n"), "-K", "=", "-H", "x=y")
    before = on("topic", "consume", topic, "--from-beginning", "-e").text
    on("topic", "create", "copy", "--partitions", "1")
    on("topic", "produce", "copy", write(tmp_path, before), "--input", "jsonl")
    kept = [
        (row["key"], row["value"], row["headers"], row["timestamp"])
        for row in rows(on("topic", "consume", "copy", "--from-beginning", "-e"))
    ]
    assert kept == [(row["key"], row["value"], row["headers"], row["timestamp"]) for row in map(json.loads, before.splitlines())]
    ran = on("topic", "produce", "copy", write(tmp_path, '{"key": null, "value": "AA=="}\nno json\n'), "--input", "jsonl", code=1)
    assert "line 2 is not JSON" in ran.err
    assert len(rows(on("topic", "consume", "copy", "--from-beginning", "-e"))) == 4
    on("topic", "delete", "copy")


def test_the_text_of_the_console_consumer(on: Kops, topic: str, tmp_path: Path) -> None:
    on("topic", "produce", topic, write(tmp_path, "k:v\nw\n"), "-K", ":", "-p", "1", "-H", "h=1", "-H", "n")
    plain = on("topic", "consume", topic, "-p", "1", "--from-beginning", "-e", "--format", "kafka")
    assert plain.out == b"v\nw\n"
    shown = [f"print.{name}=true" for name in ("key", "offset", "partition", "headers")]
    options = [word for one in [*shown, "key.separator=|", "null.literal=NULL"] for word in ("--formatter-property", one)]
    ran = on("topic", "consume", topic, "-p", "1", "--from-beginning", "-e", "--format", "kafka", *options)
    assert ran.out == b"Partition:1|Offset:0|h:1,n:NULL|k|v\nPartition:1|Offset:1|h:1,n:NULL|NULL|w\n"
    assert (
        "--formatter-property print.colour=true: not allowed"
        in on("topic", "consume", topic, "--format", "kafka", "--formatter-property", "print.colour=true", code=2).err
    )


@pytest.mark.parametrize("format", ["table", "wide", "json", "yaml", "csv", "jsonl"])
def test_every_format_has_the_records(on: Kops, topic: str, tmp_path: Path, format: str) -> None:
    on("topic", "produce", topic, write(tmp_path, "needle\n"), "--format", format)
    text = on("topic", "consume", topic, "--from-beginning", "-e", "--value-encoding", "utf8", "--format", format).text
    assert text.count("needle") == 1


def test_offsets_of_times_and_the_trim_of_a_log(on: Kops, topic: str, tmp_path: Path) -> None:
    records = [json.dumps({"value": None, "timestamp": 1_700_000_000_000 + 1000 * number}) for number in range(10)]
    on("topic", "produce", topic, write(tmp_path, "\n".join(records)), "--input", "jsonl", "-p", "0")

    def offset(time: str) -> tuple[int | None, int | None]:
        (row,) = rows(on("topic", "offsets", topic, "--partition", "0", "--time", time, "--format", "jsonl"))
        return row["offset"], row["timestamp"]

    assert offset("earliest")[0] == 0
    assert offset("latest")[0] == 10
    assert offset("max-timestamp") == (9, 1_700_000_009_000)
    assert offset("@1700000004500") == (5, 1_700_000_005_000)
    assert offset("2023-11-14T22:13:22Z") == (2, 1_700_000_002_000)
    assert offset("@1800000000000") == (None, None)
    assert (offset("-3")[0], offset("99")[0]) == (7, 10)
    (planned,) = rows(on("topic", "trim", topic, "-n", "--partition", "0", "--offset", "@1700000004000", "--format", "jsonl"))
    assert (planned["offset"], planned["low_watermark"]) == (4, None)
    (trimmed,) = rows(on("topic", "trim", topic, "--partition", "0", "--offset", "4", "--format", "jsonl"))
    assert trimmed["low_watermark"] == 4
    assert offset("earliest")[0] == 4
    assert "OFFSET_OUT_OF_RANGE" in on("topic", "trim", topic, "--partition", "0", "--offset", "99", code=1).err
    file = write(tmp_path, json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": -1}]}))
    (emptied,) = rows(on("topic", "trim", "--offset-json-file", file, "--format", "jsonl"))
    assert emptied["low_watermark"] == 10


def test_replicas_move_and_leaders_are_elected(on: Kops, topic: str, tmp_path: Path) -> None:
    plan, back = str(tmp_path / "plan.json"), str(tmp_path / "back.json")
    ran = on("partition", "reassign", "generate", "--topic", topic, "--broker-list", "1,2", "--format", "json")
    document = json.loads(ran.text)
    assert {one["partition"] for one in document["proposed"]["partitions"]} == {0, 1, 2}
    swapped = [{**one, "replicas": one["replicas"][::-1], "log_dirs": ["any", "any"]} for one in document["current"]["partitions"]]
    Path(plan).write_text(json.dumps({"version": 1, "partitions": swapped}))
    began = on("partition", "reassign", "execute", "-f", plan, "--throttle", "1000000", "--current-to", back, "--format", "jsonl")
    assert {row["state"] for row in rows(began)} == {"begun"}
    deadline = time.monotonic() + 60
    while {row["state"] for row in rows(on("partition", "reassign", "verify", "-f", plan, "--format", "jsonl"))} != {"completed"}:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert json.loads(Path(back).read_text()) == document["current"]
    wanted = [one["replicas"] for one in swapped]
    moved = described(on, topic, lambda found: not found["overrides"] and [one["replicas"] for one in found["partitions"]] == wanted)
    assert moved["overrides"] == {}
    assert [one["replicas"] for one in moved["partitions"]] == wanted
    assert {row["state"] for row in rows(on("partition", "reassign", "verify", "-f", back, "--format", "jsonl", code=1))} >= {"differs"}
    assert on("partition", "reassign", "cancel", "-f", plan).err == "none of its moves was in progress\n"
    assert on("partition", "reassign", "list").err == "nothing is being moved\n"
    elected = rows(on("partition", "elect", "--topic", topic, "--partition", "0-2", "--format", "jsonl"))
    assert {row["result"] for row in elected} <= {"elected", "not needed"}

    def has_preferred_leaders(found: Any) -> bool:
        return all(one["leader"] == one["replicas"][0] for one in found["partitions"])

    assert has_preferred_leaders(described(on, topic, has_preferred_leaders))
    on("partition", "elect", "--topic", "nowhere", "--partition", "0", code=3)
    assert on("partition", "under-replicated", topic).err == "no partition is under-replicated\n"


def test_log_dirs_and_the_quorum(on: Kops, topic: str, cluster: Cluster) -> None:
    found = rows(on("partition", "log-dirs", topic, "--format", "jsonl"))
    assert {(row["broker"], row["partition"]) for row in found} == {(broker, partition) for broker in (1, 2) for partition in range(3)}
    document = json.loads(on("partition", "log-dirs", "--broker-list", "2", "--format", "json").text)
    assert [one["broker"] for one in document["brokers"]] == [2]
    on("partition", "log-dirs", "--broker-list", "7", code=3)
    quorum = json.loads(on("quorum", "describe", "--format", "json").text)
    assert quorum["leader_id"] in quorum["voters"]
    assert quorum["high_watermark"] > 0
    assert [one["status"] for one in quorum["replicas"]].count("Leader") == 1
    assert "replicas" not in json.loads(on("quorum", "describe", "--status", "--format", "json").text)


# errors


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["topic", "describe", "nowhere"], 3, "no such topic: nowhere"),
        (["topic", "consume", "nowhere"], 3, "no such topic: nowhere"),
        (["topic", "offsets", "nowhere"], 3, "no such topic: nowhere"),
        (["topic", "trim", "nowhere", "--offset", "1"], 3, "no such topic: nowhere"),
        (["topic", "trim", "nowhere"], 2, "either TOPIC and --offset, or --offset-json-file"),
        (["topic", "create"], 2, "name a topic"),
        (["topic", "create", "x", "--replica-assignment", "1:1"], 2, "--replica-assignment 1:1: not allowed; allowed: different brokers"),
        (["topic", "create", "x", "--config", "nonsense"], 2, "--config nonsense: not a setting; allowed: key=value"),
        (["topic", "alter", "x"], 2, "nothing to change"),
        (["topic", "consume", "x", "--offset", "sometime"], 2, "--offset sometime: not allowed; allowed: earliest, latest"),
        (["topic", "consume", "x", "--partition", "-1"], 2, "--partition -1: not allowed; allowed: a partition's number"),
        (["topic", "produce", "x", "-z", "rar"], 2, "compression.type=rar: not allowed; allowed: none or gzip"),
        (
            ["topic", "list", "--command-property", "reqest.timeout.ms=1"],
            2,
            "--command-property: unknown setting reqest.timeout.ms; did you mean request",
        ),
        (
            ["topic", "list", "--command-property", "security.protocol=SSL"],
            2,
            "--command-property: security.protocol=SSL: TLS and SASL are not supported yet",
        ),
        (["topic", "list", "--command-config", "/no/such/file"], 3, "--command-config /no/such/file: no such file"),
        (["topic", "list", "--command-config", "/"], 1, "--command-config /: Is a directory"),
        (["topic", "trim", "--offset-json-file", "/no/such/file"], 3, "--offset-json-file /no/such/file: no such file"),
        (["topic", "produce", "x", "/no/such/file"], 3, "No such file or directory: /no/such/file"),
        (["topic", "list", "[oops"], 2, "[oops: neither a topic nor a regular expression"),
        (["partition", "elect"], 2, "give one of: --topic with --partition, --path-to-json-file, --all-topic-partitions"),
        (["partition", "elect", "--all-topic-partitions", "--election-type", "free"], 2, "--election-type free: not one of"),
        (["partition", "reassign", "generate", "--broker-list", "1"], 2, "either --topic or --topics-to-move-json-file"),
        (["partition", "reassign", "generate", "--broker-list", "1,1", "--topic", "x"], 2, "--broker-list 1,1: not allowed"),
    ],
)
def test_what_makes_no_sense_is_one_line(on: Kops, arguments: list[str], code: int, words: str) -> None:
    ran = on(*arguments, code=code)
    assert ran.err.startswith(f"kops: error: {words}")
    assert (ran.err.count("\n"), ran.out) == (1, b"")


def test_settings_come_from_a_file(on: Kops, kops: Kops, tmp_path: Path, cluster: Cluster) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# where it is\nbootstrap.servers = {cluster.bootstrap_servers}\ngroup.id=x\n")
    ran = kops("topic", "list", "--command-config", str(file), "-v")
    assert (ran.code, ran.err.splitlines()[0]) == (0, "group.id has no effect here")
    file.write_text("ssl.keystore.location=/x\n")
    assert on("topic", "list", "--command-config", str(file), code=2).err.startswith(
        f"kops: error: {file}: ssl.keystore.location: not supported"
    )
    file.write_text("linger.ms=soon\n")
    assert on("topic", "list", "--command-config", str(file), code=2).err.startswith(f"kops: error: {file}: linger.ms=soon: not a")
    file.write_text("linger.mss=1\nmy.interceptor.host=x\n")
    warned = on("topic", "list", "--command-config", str(file)).err.splitlines()[:2]
    assert warned == [
        f"kops: warning: {file}: unknown setting linger.mss: it has no effect; did you mean linger.ms?",
        f"kops: warning: {file}: unknown setting my.interceptor.host: it has no effect",
    ]


def test_the_address_comes_from_the_environment(kops: Kops, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOOTSTRAP_SERVERS", cluster.bootstrap_servers)
    assert kops("quorum", "describe").code == 0


def test_an_unreachable_server_is_told_with_its_address(kops: Kops) -> None:
    started = time.monotonic()
    ran = kops("topic", "list", "-b", "127.0.0.1:1", "--command-property", "default.api.timeout.ms=500")
    assert (ran.code, ran.out) == (4, b"")
    assert ran.err == "kops: error: no answer from 127.0.0.1:1: Connection refused\n"
    assert time.monotonic() - started < 60


@pytest.mark.slow
def test_what_was_acknowledged_is_told_when_the_only_broker_dies(kops: Kops, tmp_path: Path) -> None:
    pipe = tmp_path / "lines"
    os.mkfifo(pipe)
    patience = ["--command-property", "delivery.timeout.ms=8000", "--command-property", "request.timeout.ms=4000"]
    with Cluster(brokers=1, topics=["orders:1"]) as cluster:

        def write_and_kill() -> None:
            with pipe.open("wb", buffering=0) as lines:
                lines.write(b"first\nsecond\n")
                key = TopicPartition("orders", 0)
                with client_of(cluster.bootstrap_servers, timeout_ms=60_000) as client:
                    while list_offsets(client, {key: LATEST})[key].offset < 2:  # type: ignore[union-attr]
                        time.sleep(0.01)
                cluster.kill_broker(1)
                lines.write(b"third\n")

        writer = threading.Thread(target=write_and_kill)
        writer.start()
        ran = kops("topic", "produce", "orders", str(pipe), "-b", cluster.bootstrap_servers, *patience, "--format", "jsonl")
        writer.join()
    assert ran.code == 4
    told = rows(ran)
    assert [(row["records"], row["last_offset"], row["failed"]) for row in told] == [(2, 1, 0), (0, None, 1)]
    assert "kops: warning: orders: 1 record was not acknowledged: orders-0: not delivered within 8000 ms" in ran.err


def test_a_server_that_hangs_is_passed_over_for_the_next(kops: Kops, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        ran = kops("topic", "list", "-b", f"{address},{cluster.address(1)}")
        assert ran.code == 0
        monkeypatch.setattr("kops.client.client.WAITING_MS", 500)
        alone = kops("topic", "list", "-b", address, "--command-property", "default.api.timeout.ms=2500")
    assert alone.code == 4
    words = f"no answer from {address}: it accepted the connection but does not answer"
    assert alone.err == f"still trying: {words}\nkops: error: {words}\n"


def test_who_does_not_say_where_the_cluster_is_hears_how(kops: Kops, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("kops.cli.inputs.connecting.DEFAULT_SERVER", "localhost:1")
    monkeypatch.delenv("BOOTSTRAP_SERVERS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("kops.cluster.launch.running_directories", set)
    quick = ["--command-property", "default.api.timeout.ms=100"]
    ran = kops("topic", "list", *quick)
    assert (ran.code, ran.err.count("\n")) == (4, 1)
    assert ran.err.endswith(" (name a server with -b or $BOOTSTRAP_SERVERS, or start a cluster with kops cluster up)\n")
    place = ClusterDirectory("kops-data")
    os.mkdir(place.path)
    place.write_properties(1, {"process.roles": "broker", "listeners": "PLAINTEXT://127.0.0.1:10092"})
    monkeypatch.setattr("kops.cluster.launch.running_directories", lambda: {place.path, "/another"})
    said = kops("topic", "list", *quick).err
    assert said.endswith(f' (the cluster in {place.path} is at 127.0.0.1:10092: -b, or eval "$(kops cluster env)")\n')
    assert "kops cluster" not in kops("topic", "list", "-b", "localhost:1", *quick).err


def test_a_reader_that_goes_away_is_no_error(on: Kops, topic: str, tmp_path: Path, cluster: Cluster) -> None:
    on("topic", "produce", topic, write(tmp_path, "x\n" * 20_000))
    command = f"{sys.executable} -m kops topic consume {topic} --from-beginning -b {cluster.bootstrap_servers}"
    line = f"{command} | head -n 3; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", line], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr, done.stdout.count("\n")) == (0, "", 3)


def test_a_reader_that_waits_ends_when_nobody_reads(on: Kops, topic: str, cluster: Cluster) -> None:
    command = [sys.executable, "-m", "kops", "topic", "consume", topic, "-b", cluster.bootstrap_servers]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == b""


def test_ctrl_c_ends_a_reader_and_says_how_to_go_on(on: Kops, topic: str, tmp_path: Path, cluster: Cluster) -> None:
    on("topic", "produce", topic, write(tmp_path, "x\ny\n"), "-p", "2")
    command = [sys.executable, "-m", "kops", "topic", "consume", topic, "-p", "2", "--from-beginning", "-b", cluster.bootstrap_servers]
    with subprocess.Popen(command, cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        said = process.stderr.read().decode()
    assert [json.loads(line)["value"] for line in lines] == ["eA==", "eQ=="]
    assert said.startswith("kops: interrupted")
    assert said.endswith(f"To resume: kops topic consume {topic} --partition 2 --offset 2\n")


def test_lines_from_a_pipe_are_written_as_they_come(on: Kops, topic: str, cluster: Cluster) -> None:
    command = [sys.executable, "-m", "kops", "topic", "produce", topic, "-p", "0", "-b", cluster.bootstrap_servers, "--format", "jsonl"]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"first\nsecond")
        process.stdin.flush()
        assert len(rows(on("topic", "consume", topic, "-p", "0", "--from-beginning", "--max-messages", "1"))) == 1
        process.stdin.close()
        assert process.wait(60) == 0
        assert json.loads(process.stdout.read())["records"] == 2


def test_a_closed_stdin_is_told(on: Kops, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", None)
    assert on("topic", "produce", topic, code=2).err == "kops: error: standard input is closed: name a file\n"


def test_no_bar_is_drawn_into_a_pipe(cluster: Cluster, on: Kops, topic: str) -> None:
    ran = kops_process("topic", "produce", topic, "-b", cluster.bootstrap_servers, stdin=b"x\n" * 1000)
    assert (ran.code, ran.err) == (0, "")
    assert b"\r" not in ran.out
