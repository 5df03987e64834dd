"""kops's client and its commands on Apache Kafka 4.3.0, compared with Kafka's own tools, producer and consumer."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from kops.cli.main import main
from kops.client.producer.partitioners import murmur2, partition_for_key
from kops.client.settings import CLIENT_CONFIG_DEF
from tests.cli.conftest import Ran
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker

Kops = Callable[..., Ran]


def test_murmur2_and_where_keys_go(oracle: Oracle) -> None:
    rng = random.Random(5)
    utils = oracle.java_class("org.apache.kafka.common.utils.Utils")
    partitioner = oracle.java_class("org.apache.kafka.clients.producer.internals.BuiltInPartitioner")
    for size in [*range(20), *(rng.randrange(300) for _ in range(40))]:
        key = rng.randbytes(size)
        assert murmur2(key) == utils.murmur2(key) % (1 << 32)
        assert partition_for_key(key, 17) == partitioner.partitionForKey(key, 17)


def test_every_setting_of_a_client_is_known(oracle: Oracle) -> None:
    names = {
        str(name)
        for kind in ("admin.AdminClientConfig", "producer.ProducerConfig", "consumer.ConsumerConfig")
        for name in oracle.java_class(f"org.apache.kafka.clients.{kind}").configDef().names().toArray()
    }
    assert set(CLIENT_CONFIG_DEF.keys) == names


@pytest.fixture(scope="module")
def broker(oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealBroker]:
    folder = tmp_path_factory.mktemp("real")
    with RealBroker(oracle, folder / "run", log_dirs=[folder / "d1", folder / "d2"]) as started:
        yield started


@pytest.fixture
def on(broker: RealBroker, capsysbinary: pytest.CaptureFixture[bytes]) -> Kops:
    def run(*arguments: str, code: int = 0) -> Ran:
        ended = main([*arguments, "-b", broker.bootstrap])
        captured = capsysbinary.readouterr()
        ran = Ran(ended, captured.out, captured.err.decode())
        assert ran.code == code, ran.text + ran.err
        return ran

    return run


@pytest.fixture
def tool(oracle: Oracle, broker: RealBroker) -> Callable[..., str]:
    tools = KafkaTools(oracle)
    return lambda name, *arguments: tools.run(name, "--bootstrap-server", broker.bootstrap, *arguments)


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.text.splitlines()]


@pytest.mark.slow
def test_topics_as_kafka_describes_them(on: Kops, tool: Callable[..., str]) -> None:
    on("topic", "create", "described", "--partitions", "3", "--config", "retention.ms=77777", "--config", "cleanup.policy=compact")
    on("topic", "create", "bare")
    on("topic", "alter", "described", "--partitions", "4", "--config", "segment.bytes=1048576", "--delete-config", "retention.ms")
    (document,) = json.loads(on("topic", "describe", "described", "--format", "json").text)["topics"]
    assert described(tool("topics", "--describe", "--topic", "described")) == facts(document)
    assert sorted(tool("topics", "--list").split()) == [row["topic"] for row in rows(on("topic", "list", "--format", "jsonl"))]
    for flag in ("--under-replicated-partitions", "--unavailable-partitions", "--under-min-isr-partitions", "--at-min-isr-partitions"):
        theirs = re.findall(r"Topic: (\S+)\s+Partition: (\d+)", tool("topics", "--describe", flag))
        documents = json.loads(on("topic", "describe", flag, "--format", "json").text)["topics"]
        ours = [(document["topic"], str(one["partition"])) for document in documents for one in document["partitions"]]
        assert sorted(theirs) == sorted(ours), flag
    assert on("topic", "create", "described", code=1).err.startswith("kops: error: described: Topic 'described' already exists.")


def described(text: str) -> dict[str, Any]:
    """Return the facts in the output of kafka-topics about one topic."""
    head, *lines = text.strip().splitlines()
    found = dict(re.findall(r"(\w+): ?(\S*)", head))
    partitions = []
    for line in lines:
        fields = dict(re.findall(r"(Partition|Leader|Replicas|Isr|Elr|LastKnownElr): ?([\d,]*)", line))
        partitions.append({name: fields[name] for name in ("Partition", "Leader", "Replicas", "Isr", "Elr", "LastKnownElr")})
    configs = dict(pair.split("=") for pair in found["Configs"].split(",") if pair)
    return {
        **{name: found[name] for name in ("Topic", "TopicId", "PartitionCount", "ReplicationFactor")},
        "Configs": configs,
        "": partitions,
    }


def facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same facts from `kops topic describe`."""

    def text(ids: list[int]) -> str:
        return ",".join(map(str, ids))

    return {
        "Topic": document["topic"],
        "TopicId": document["topic_id"],
        "PartitionCount": str(document["partition_count"]),
        "ReplicationFactor": str(document["replication_factor"]),
        "Configs": document["configs"],
        "": [
            {
                "Partition": str(one["partition"]),
                "Leader": str(one["leader"]),
                "Replicas": text(one["replicas"]),
                "Isr": text(one["isr"]),
                "Elr": text(one["elr"]),
                "LastKnownElr": text(one["last_known_elr"]),
            }
            for one in document["partitions"]
        ],
    }


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_that_kops_writes_are_read_by_kafka(on: Kops, oracle: Oracle, broker: RealBroker, tmp_path: Path, codec: str) -> None:
    topic = f"written-{codec}"
    on("topic", "create", topic)
    file = tmp_path / "lines"
    headers = [["h", "AA=="], ["n", None]]
    records = [
        {"key": None if number % 3 else f"a{number:07}", "value": "eHl6" * (number % 50), "headers": headers} for number in range(500)
    ]
    file.write_text("".join(json.dumps({**record, "timestamp": 1_700_000_000_000 + index}) + "\n" for index, record in enumerate(records)))
    on("topic", "produce", topic, str(file), "--input", "jsonl", "-z", codec)
    consumed = oracle.read_records(broker.bootstrap, topic, 0)
    ours = rows(on("topic", "consume", topic, "--from-beginning", "-e"))
    assert [{name: record[name] for name in consumed.records[0]} for record in ours] == consumed.records
    assert [(record["key"], record["value"], record["headers"]) for record in ours] == [
        (record["key"], record["value"], record["headers"]) for record in records
    ]


@pytest.mark.slow
def test_records_of_kafkas_producer_and_both_isolation_levels(on: Kops, oracle: Oracle, broker: RealBroker) -> None:
    on("topic", "create", "transactions")
    pairs: list[tuple[bytes | None, bytes | None]] = [(b"k%d" % number, b"v%d" % number) for number in range(25)]
    oracle.produce(broker.bootstrap, "transactions", 0, pairs, settings={"transactional.id": "t", "compression.type": "lz4"})
    oracle.produce(broker.bootstrap, "transactions", 0, [(None, None)])
    for isolation in ("read_uncommitted", "read_committed"):
        theirs = oracle.read_records(broker.bootstrap, "transactions", 0, isolation=isolation)
        ours = rows(on("topic", "consume", "transactions", "--from-beginning", "-e", "--isolation-level", isolation))
        assert [{name: record[name] for name in theirs.records[0]} for record in ours] == theirs.records


@pytest.mark.slow
def test_offsets_directories_quorum_and_text_as_kafkas_tools_have_them(
    on: Kops, tool: Callable[..., str], broker: RealBroker, tmp_path: Path
) -> None:
    on("topic", "create", "shared", "--partitions", "2")
    lines = tmp_path / "lines"
    lines.write_text("".join(f"k{number}:v{number}\n" for number in range(100)) + "alone\n")
    on("topic", "produce", "shared", str(lines), "-K", ":", "-H", "a=b")
    for moment in ("earliest", "latest", "max-timestamp"):
        theirs = sorted(tool("get-offsets", "--topic", "shared", "--time", moment).split())
        ours = rows(on("topic", "offsets", "shared", "--time", moment, "--format", "jsonl"))
        assert theirs == [f"{row['topic']}:{row['partition']}:{row['offset']}" for row in ours]
    document = json.loads(tool("log-dirs", "--describe", "--topic-list", "shared").splitlines()[-1])
    theirs_dirs = {
        (one["logDir"], partition["partition"], partition["size"], partition["offsetLag"], partition["isFuture"])
        for one in document["brokers"][0]["logDirs"]
        for partition in one["partitions"]
    }
    found = [row for row in rows(on("partition", "log-dirs", "shared", "--format", "jsonl")) if "partition" in row]
    ours_dirs = {
        (row["log_dir"], f"shared-{row['partition']}", *(row[name] for name in ("size", "offset_lag", "is_future"))) for row in found
    }
    assert ours_dirs == theirs_dirs
    state = dict(re.findall(r"(\w+):\s+(\S+)", tool("metadata-quorum", "describe", "--status")))
    quorum = json.loads(on("quorum", "describe", "--format", "json").text)
    assert [state[name] for name in ("ClusterId", "LeaderId", "LeaderEpoch", "MaxFollowerLag")] == [
        str(quorum[name]) for name in ("cluster_id", "leader_id", "leader_epoch", "max_follower_lag")
    ]
    shown = [f"print.{name}=true" for name in ("key", "offset", "partition", "headers", "timestamp", "epoch")]
    theirs_text = tool(
        "console-consumer",
        *("--topic", "shared", "--partition", "1", "--offset", "earliest", "--max-messages", "5"),
        *(word for one in shown for word in ("--formatter-property", one)),
    )
    options = [word for one in shown for word in ("--formatter-property", one)]
    ours_text = on("topic", "consume", "shared", "-p", "1", "--from-beginning", "-c", "5", "--format", "kafka", *options).text
    assert theirs_text.splitlines()[:5] == ours_text.splitlines()
    file = tmp_path / "trim.json"
    file.write_text(json.dumps({"version": 1, "partitions": [{"topic": "shared", "partition": 1, "offset": 3}]}))
    (trimmed,) = rows(on("topic", "trim", "--offset-json-file", str(file), "--format", "jsonl"))
    assert trimmed["low_watermark"] == 3
    assert tool("get-offsets", "--topic-partitions", "shared:1", "--time", "earliest").strip() == "shared:1:3"


@pytest.mark.slow
def test_replicas_move_between_log_directories(on: Kops, tool: Callable[..., str], broker: RealBroker, tmp_path: Path) -> None:
    on("topic", "create", "moving")
    (lines := tmp_path / "lines").write_text("x\n" * 1000)
    on("topic", "produce", "moving", str(lines))
    plan, back = tmp_path / "plan.json", tmp_path / "back.json"
    topics = tmp_path / "topics.json"
    topics.write_text('{"topics": [{"topic": "moving"}], "version": 1}')
    on("partition", "reassign", "generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1", "--current-to", str(back))
    text = tool("reassign-partitions", "--generate", "--topics-to-move-json-file", topics, "--broker-list", "1")
    assert back.read_text().strip() in text.splitlines()
    (here,) = json.loads(back.read_text())["partitions"][0]["log_dirs"]
    there = next(str(path) for path in broker.log_dirs if str(path) != here)
    plan.write_text(back.read_text().replace(here, there))
    on("partition", "reassign", "execute", "-f", str(plan), "--replica-alter-log-dirs-throttle", "100000000")
    deadline = time.monotonic() + 60
    while {row["state"] for row in rows(on("partition", "reassign", "verify", "-f", str(plan), "--format", "jsonl"))} != {"completed"}:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "is completed" in tool("reassign-partitions", "--verify", "--reassignment-json-file", plan)
    assert (Path(there) / "moving-0").is_dir()
    elected = rows(on("partition", "elect", "--topic", "moving", "--partition", "0", "--format", "jsonl"))
    assert [row["result"] for row in elected] == ["not needed"]
