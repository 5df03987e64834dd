"""`kops txn` on Apache Kafka 4.3.0 and on kops, compared with Kafka's transactions tool."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kops.cli.main import main
from kops.cluster.questions import client_of
from kops.protocol.declaration import Message
from kops.protocol.messages import ProduceRequest
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records import BatchBuilder
from tests.cli.conftest import Ran
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker
from tests.support.nodes.kops_nodes import KopsNodes

Kops = Callable[..., Ran]
Tool = Callable[..., str]
pytestmark = pytest.mark.slow
# A broker lets a producer write without its coordinator, as before 3.6, so a transaction can hang.
SETTINGS = {"transaction.partition.verification.enable": "false"}


class Served(NamedTuple):
    """A broker, and the place of its files."""

    bootstrap: str
    log_dir: Path


@pytest.fixture(scope="module", params=["kafka", "kops"])
def broker(request: pytest.FixtureRequest, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """Provide one broker of Kafka and one of kops."""
    folder = tmp_path_factory.mktemp(request.param)
    if request.param == "kops":
        with KopsNodes(folder, 1, settings=SETTINGS) as nodes:
            yield Served(nodes.bootstrap, nodes.log_dir(1))
        return
    with RealBroker(oracle, folder / "run", log_dirs=[folder / "d1"], settings=SETTINGS) as started:
        yield Served(started.bootstrap, folder / "d1")


@pytest.fixture
def on(broker: Served, capsysbinary: pytest.CaptureFixture[bytes]) -> Kops:
    def run(*arguments: str, code: int = 0) -> Ran:
        ended = main([*arguments, "-b", broker.bootstrap])
        captured = capsysbinary.readouterr()
        ran = Ran(ended, captured.out, captured.err.decode())
        assert ran.code == code, ran.text + ran.err
        return ran

    return run


@pytest.fixture
def tool(oracle: Oracle, broker: Served) -> Tool:
    tools = KafkaTools(oracle)
    return lambda name, *arguments: tools.run(name, "--bootstrap-server", broker.bootstrap, *arguments)


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.text.splitlines()]


def table(text: str) -> list[list[str]]:
    """Return the rows of a table of Kafka's, without its heading."""
    return sorted(line.split() for line in text.splitlines()[1:] if line.strip())


def words(row: dict[str, Any], *names: str) -> list[str]:
    return ["None" if row[name] is None else str(row[name]) for name in names]


def write_without_coordinator(broker: Served, topic: str, producer_id: int, timestamp: int) -> None:
    """Write a transactional batch of a producer that never added the partition at its coordinator."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(timestamp, b"k", b"v")
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=builder.build())])]

    def handle(response: Message) -> int:
        return int(response.responses[0].partition_responses[0].error_code)  # type: ignore[attr-defined]

    with client_of(broker.bootstrap, timeout_ms=10_000) as client:
        client.fetch_metadata([topic])
        request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=5000, topic_data=data)
        assert client.call("produce", 1, lambda _: request, handle, versions=range(9, 12)) == 0


def test_transactions_as_kafkas_tool_shows_them(on: Kops, oracle: Oracle, tool: Tool, broker: Served) -> None:
    oracle.create_topic(broker.bootstrap, "paid")
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": "pay-1",
        **{f"{part}.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer" for part in ("key", "value")},
    }
    producer = oracle.java_class("org.apache.kafka.clients.producer.KafkaProducer")(oracle.properties(settings))
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(oracle.java_class("org.apache.kafka.clients.producer.ProducerRecord")("paid", b"v")).get()
    theirs = table(tool("transactions", "list"))
    ours = rows(on("txn", "list", "--format", "jsonl"))
    assert sorted(words(row, "transactional_id", "coordinator", "producer_id", "state") for row in ours) == theirs
    assert [row["transactional_id"] for row in rows(on("txn", "list", "--state", "Ongoing", "--format", "jsonl"))] == ["pay-1"]
    [described] = rows(on("txn", "describe", "pay-1", "--format", "jsonl"))
    told = tool("transactions", "describe", "--transactional-id", "pay-1").split("\n")[1].split()
    columns = ("coordinator", "transactional_id", "producer_id", "producer_epoch", "state", "timeout_ms", "started")
    assert told[:7] == words(described, *columns)
    assert told[8].split(",") == described["partitions"] == ["paid-0"]
    shown = rows(on("txn", "producers", "paid", "--format", "jsonl"))
    names = ("producer_id", "producer_epoch", "coordinator_epoch", "last_sequence", "last_timestamp", "txn_start_offset")
    told_rows = table(tool("transactions", "describe-producers", "--topic", "paid", "--partition", "0"))
    assert [words(row, *names) for row in shown] == told_rows
    assert shown[0]["txn_start_offset"] == 0
    assert rows(on("txn", "find-hanging", "--max-transaction-timeout", "0", "--format", "jsonl")) == []
    on("txn", "abort", "--transactional-id", "pay-1")
    deadline = time.monotonic() + 60
    while rows(on("txn", "producers", "paid:0", "--format", "jsonl"))[0]["txn_start_offset"] is not None:
        assert time.monotonic() < deadline
    assert "TRANSACTIONAL_ID_NOT_FOUND" in on("txn", "describe", "none", code=3).err
    producer.close(oracle.java_class("java.time.Duration").ofMillis(0))


def test_a_hanging_transaction_is_found_and_aborted(on: Kops, oracle: Oracle, tool: Tool, broker: Served, tmp_path: Path) -> None:
    oracle.create_topic(broker.bootstrap, "hung")
    oracle.produce(broker.bootstrap, "hung", 0, [(b"k", b"v")] * 3)
    write_without_coordinator(broker, "hung", 424242, int(time.time() * 1000) - 20 * 60_000)
    [found] = rows(on("txn", "find-hanging", "--format", "jsonl"))
    told = tool("transactions", "find-hanging", "--broker-id", "1").split("\n")[1].split()
    columns = ("topic", "partition", "producer_id", "producer_epoch", "coordinator_epoch", "txn_start_offset", "last_timestamp", "minutes")
    assert words(found, *columns) == told
    assert found["txn_start_offset"] == 3
    for scope in (("hung",), ("--topic", "hung", "--partition", "0"), ("--broker-id", "1")):
        assert len(rows(on("txn", "find-hanging", *scope, "--format", "jsonl"))) == 1
    assert on("txn", "find-hanging", "--max-transaction-timeout", "30").err == "no hanging transactions\n"
    assert on("txn", "find-hanging", "paid").text == ""
    # `kops log txns` finds the same transaction in the files.
    assert main(["log", "txns", "--hanging", "--format", "jsonl", "-o", str(tmp_path / "txns"), str(broker.log_dir)]) == 4
    [offline] = [json.loads(line) for line in (tmp_path / "txns").read_text().splitlines()]
    assert (offline["producer_id"], offline["first_offset"], offline["command"]) == (424242, 3, found["command"])
    assert (
        "no open transaction begins at offset 1"
        in on("txn", "abort", "--topic", "hung", "--partition", "0", "--start-offset", "1", code=3).err
    )
    assert oracle.read_records(broker.bootstrap, "hung", 0, isolation="read_committed").meta["endOffset"] == 3
    assert "is aborted" in on(*found["command"].split()[1:]).err
    assert rows(on("txn", "find-hanging", "--format", "jsonl")) == []
    assert oracle.read_records(broker.bootstrap, "hung", 0, isolation="read_committed").meta["endOffset"] == 5
    on("txn", "abort", "--topic", "hung", "--start-offset", "1", code=2)
    on("txn", "abort", "--topic", "hung", "--partition", "0", "--producer-id", "1", code=2)
    on("txn", "abort", code=2)


def test_records_of_a_run_are_one_transaction(on: Kops, oracle: Oracle, tool: Tool, broker: Served, tmp_path: Path) -> None:
    on("topic", "create", "whole", "--partitions", "2")
    good, bad = tmp_path / "good", tmp_path / "bad"
    good.write_text("".join(f"{number}\t{number}\n" for number in range(10)))
    bad.write_text('{"value": "AA=="}\nno json\n')

    def seen(isolation: str) -> int:
        found = (oracle.read_records(broker.bootstrap, "whole", part, isolation=isolation).records for part in (0, 1))
        return sum(map(len, found))

    produce = ("topic", "produce", "whole", "--transactional-id", "load-1", "--command-property", "linger.ms=0")
    assert on(*produce, str(good), "-K", "\\t").err.endswith("the transaction of load-1 is committed\n")
    deadline = time.monotonic() + 60
    while seen("read_committed") < 10:
        assert time.monotonic() < deadline
    assert "1 record was not committed: the transaction was aborted" in on(*produce, str(bad), "--input", "jsonl", code=1).err
    assert seen("read_committed") == 10
    # Kafka's producer takes over the id. The next run of kops takes it back.
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "transactional.id": "load-1",
        **{f"{part}.serializer": "org.apache.kafka.common.serialization.ByteArraySerializer" for part in ("key", "value")},
    }
    producer = oracle.java_class("org.apache.kafka.clients.producer.KafkaProducer")(oracle.properties(settings))
    producer.initTransactions()
    producer.beginTransaction()
    producer.send(oracle.java_class("org.apache.kafka.clients.producer.ProducerRecord")("whole", b"theirs")).get()
    assert on(*produce, str(good), "-K", "\\t").err.endswith("the transaction of load-1 is committed\n")
    with pytest.raises(Exception, match="ProducerFencedException"):
        producer.commitTransaction()
    producer.close(oracle.java_class("java.time.Duration").ofMillis(0))
    deadline = time.monotonic() + 60
    while seen("read_committed") < 20:
        assert time.monotonic() < deadline
    ran = on("topic", "produce", "whole", str(good), "--transactional-id", "l", "--transaction-timeout-ms", "2000000", code=1)
    assert ran.err.splitlines()[-1].startswith(
        "kops: error: transaction.timeout.ms=2000000: the transaction timeout is too large; allowed: up to"
    )
