"""Runs of Kafka 4.3.0's tools for groups of all kinds and for transactions, and what the tools printed on three real nodes.

The text of Apache Kafka is kept in tests/golden/group-tools.json, with ids and times masked. `python -m
tests.support.kafka.programs.group_scenarios` runs the scenarios on three new nodes of Apache Kafka and writes the file. With names of
scenarios as arguments, it runs only these.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError

from kops.cluster.questions import client_of
from kops.protocol.declaration import Message
from kops.protocol.messages import ProduceRequest
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records import BatchBuilder
from tests.support.corpus import PROJECT
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.programs.share_scenarios import share_groups
from tests.support.kafka.programs.streams_scenarios import streams_groups
from tests.support.kafka.programs.tool_texts import PATIENCE_S, Scenario, comparable
from tests.support.nodes.kops_nodes import KopsNodes

FILE: Final = PROJECT / "tests" / "golden" / "group-tools.json"
CONSUMER: Final = ("--command-property", "group.protocol=consumer")
NOTED: Final = re.compile(r'"\w*([tT]imestamp|[pP]roducerId|topicId|Hash|memberId)\w*":("[^"]*"|-?\d+),?|(offset|CreateTime): \d+ ?')
OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"
MINUTES_20: Final = 20 * 60_000

MASKS: Final = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r"[ \t]+", " "),
        (r"[\w.]+-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "member"),
        (r" [\w-]{22} (?=/127|i-)", " member "),
        (r"broker-\d \(\d\)", "coordinator"),
        (r"sent to broker \d", "sent to broker *"),
        # Assignments are at least a second apart, so how many epochs get one depends on time.
        (r"( Empty \d+) \d+ (\d+)$", r"\1 * \2"),
        (r'"(timestamp|time)":("[^"]*"|\d+)', r"\1"),
        (r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d:\d+, .*?, (\d+\.\d+), [^,]+, (\d+), .*", r"start, end, \1, rate, \2, rates"),
    )
]
# Columns of tables whose numbers differ from cluster to cluster.
KEYS: Final = "ad"  # of two partitions, each key goes to a different one
COLUMNS: Final = (
    "CoordinatorId",
    "Coordinator",
    "ProducerId",
    "LastTimestamp",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "Duration(min)",
)


def masked(lines: list[str]) -> list[str]:
    """Mask what differs between two clusters. The rows have any order, so sort them."""
    found = []
    hidden: list[int] = []
    for line in lines:
        for pattern, replacement in MASKS:
            line = pattern.sub(replacement, line)
        words = line.split(" ")
        if any(name in words for name in COLUMNS):
            hidden = [number for number, name in enumerate(words) if name in COLUMNS]
        elif hidden:
            line = " ".join("*" if number in hidden and word.isdigit() else word for number, word in enumerate(words))
        found.append(line.strip())
    return sorted(found)


def told(scenario: Scenario) -> list[list[Any]]:
    """Return the commands and the masked answers."""
    answers = []
    for command, text in scenario.told:
        lines = masked(comparable(command, text, scenario.nodes, scenario.work))
        answers.append([command.replace(str(scenario.work), "work"), lines])
    return answers


def create(scenario: Scenario, topic: str) -> None:
    """Create a topic of two partitions."""
    scenario.run("topics", "--create", "--topic", topic, "--replica-assignment", "1:2:3,2:3:1")
    scenario.until(lambda text: topic in text.split(), "topics", "--list", "--exclude-internal")


def delete(scenario: Scenario, *topics: str) -> None:
    """Delete topics and wait until they are gone."""
    for topic in topics:
        scenario.run("topics", "--delete", "--topic", topic)
    scenario.until(lambda text: not set(topics) & set(text.split()), "topics", "--list", "--exclude-internal")


def write(scenario: Scenario, topic: str, keys: str = KEYS, count: int = 5) -> None:
    """Write `count` records with each of the keys."""
    for key in keys:
        lines = "".join(f"{key}\tvalue{number}\n" for number in range(count))
        scenario.run("console-producer", "--topic", topic, "--reader-property", "parse.key=true", stdin=lines)


@contextmanager
def client(scenario: Scenario, kind: str, **settings: object) -> Iterator[Any]:
    """Provide a producer or consumer in the oracle's JVM and close it at the end."""
    oracle = scenario.tools.oracle
    codec, names = ("ByteArraySerializer", "serializer") if kind == "Producer" else ("ByteArrayDeserializer", "deserializer")
    base = {f"{part}.{names}": f"org.apache.kafka.common.serialization.{codec}" for part in ("key", "value")}
    base["bootstrap.servers"] = scenario.nodes.bootstrap
    given = {name.replace("_", "."): value for name, value in settings.items()}
    made = oracle.java_class(f"org.apache.kafka.clients.{kind.lower()}.Kafka{kind}")(oracle.properties(base | given))
    try:
        yield made
    finally:
        made.close(oracle.jvm.java.time.Duration.ofSeconds(5))


@contextmanager
def administrator(scenario: Scenario) -> Iterator[Any]:
    """Provide an administrator in the oracle's JVM."""
    oracle = scenario.tools.oracle
    admin = oracle.java_class("org.apache.kafka.clients.admin.Admin").create(
        oracle.properties({"bootstrap.servers": scenario.nodes.bootstrap})
    )
    try:
        yield admin
    finally:
        admin.close()


def send(scenario: Scenario, producer: Any, topic: str, value: str) -> None:
    """Send a record to each of two partitions and wait for the acknowledgements."""
    record = scenario.tools.oracle.java_class("org.apache.kafka.clients.producer.ProducerRecord")
    for partition in range(2):
        producer.send(record(topic, partition, None, value.encode())).get()


def failure(call: Callable[[], object]) -> str:
    """Return the class of the exception that a call throws."""
    try:
        call()
    except Py4JJavaError as error:
        return f"!! {error.java_exception.getClass().getName()}\n"
    return ""


def transactions(scenario: Scenario) -> None:
    """kafka-transactions runs while a producer's transactions are committed, aborted and terminated."""
    run, topic = scenario.run, "bills"
    create(scenario, topic)
    tool = "transactions"
    run(tool, "list")
    run(tool, "describe", "--transactional-id", "none")
    run(tool, "forceTerminateTransaction", "--transactionalId", "none")
    run(tool, "describe-producers", "--topic", topic, "--partition", 0)
    described = (tool, "describe", "--transactional-id", "pay-1")
    reading = ("console-consumer", "--topic", topic, "--offset", "earliest", "--isolation-level", "read_committed", "--timeout-ms", 1500)
    with client(scenario, "Producer", transactional_id="pay-1", linger_ms=0) as producer:
        producer.initTransactions()
        run(*described)
        producer.beginTransaction()
        send(scenario, producer, topic, "first")
        run(tool, "list")
        run(tool, "list", "--transactional-id-pattern", "pay-.*")
        run(tool, "list", "--transactional-id-pattern", "x.*")
        run(tool, "list", "--transactional-id-pattern", "[")
        run(tool, "list", "--duration-filter", 100_000_000)
        run(*described)
        for more in ((), ("--broker-id", 3)):
            run(tool, "describe-producers", "--topic", topic, "--partition", 0, *more)
        run(tool, "find-hanging", "--broker-id", 1)
        run(tool, "find-hanging", "--topic", topic, "--max-transaction-timeout", 0)
        run(tool, "find-hanging", "--topic", topic, "--partition", 1)
        run(tool, "find-hanging", "--partition", 1)
        run(tool, "find-hanging")
        run(*reading, "--partition", 0)
        run("get-offsets", "--topic", topic)
        producer.commitTransaction()
        scenario.until(lambda text: "CompleteCommit" in text, *described)
        run(*reading, "--partition", 0, "--max-messages", 1)
        producer.beginTransaction()
        send(scenario, producer, topic, "second")
        producer.abortTransaction()
        scenario.until(lambda text: "CompleteAbort" in text, *described)
        run(tool, "describe-producers", "--topic", topic, "--partition", 0)
        producer.beginTransaction()
        send(scenario, producer, topic, "third")
        run(tool, "forceTerminateTransaction", "--transactionalId", "pay-1")
        scenario.until(lambda text: "Empty" in text, *described)
        scenario.note("commit", ("pay-1",), failure(producer.commitTransaction))
        run(*described)
    run(tool, "forceTerminateTransaction", "--transactionalId", "pay-1")
    run(*described)
    run(*reading, "--partition", 1, "--max-messages", 2)
    for when in ("latest", "earliest", "max-timestamp"):
        run("get-offsets", "--topic", topic, "--time", when)
    delete(scenario, topic)


def hanging(scenario: Scenario) -> None:
    """kafka-transactions finds a transaction that no coordinator knows, and aborts it."""
    run, tool, topic = scenario.run, "transactions", "hung"
    create(scenario, topic)
    default = ("--entity-type", "brokers", "--entity-default")
    setting = "transaction.partition.verification.enable"
    run("configs", "--alter", *default, "--add-config", f"{setting}=false")
    scenario.until(lambda text: f"{setting}=false" in text, "configs", "--describe", *default)
    for broker in scenario.nodes.ids:
        of_broker = ("--entity-type", "brokers", "--entity-name", broker, "--all")
        _wait(scenario, lambda text: f"{setting}=false" in text, "configs", "--describe", *of_broker)
    write(scenario, topic, count=3)
    write_without_coordinator(scenario.nodes.bootstrap, topic, 424_242, int(time.time() * 1000) - MINUTES_20)
    for more in (("--broker-id", 1), ("--topic", topic), ("--topic", topic, "--partition", 1), ("--topic", "none")):
        run(tool, "find-hanging", *more)
    run(tool, "find-hanging", "--broker-id", 1, "--max-transaction-timeout", 30)
    run(tool, "describe-producers", "--topic", topic, "--partition", 0)
    one = (tool, "abort", "--topic", topic, "--partition", 0)
    run(*one)
    run(*one, "--start-offset", 1)
    run(*one, "--producer-id", 424_242)
    run(*one, "--producer-id", 424_242, "--producer-epoch", 0)
    # An older epoch of the producer has no transaction to abort, and an older coordinator has none to report.
    run(*one, "--producer-id", 424_243, "--producer-epoch", 0, "--coordinator-epoch", 0)
    run(*one, "--start-offset", 3)
    run(tool, "describe-producers", "--topic", topic, "--partition", 0)
    run(tool, "find-hanging", "--broker-id", 1)
    run(*one, "--start-offset", 3)
    run("get-offsets", "--topic", topic)
    run("configs", "--alter", *default, "--delete-config", setting)
    delete(scenario, topic)


def _wait(scenario: Scenario, found: Callable[[str], bool], tool: str, *arguments: object) -> None:
    """Wait like `until`, but do not keep the text."""
    scenario.until(found, tool, *arguments)
    scenario.told.pop()


def write_without_coordinator(bootstrap: str, topic: str, producer_id: int, timestamp: int) -> None:
    """Write a transactional batch of a producer that never added the partition at its coordinator. Broker 1 leads the partition."""
    builder = BatchBuilder(producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(timestamp, b"k", b"v")
    data = [TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=builder.build())])]

    def handle(response: Message) -> int:
        return int(response.responses[0].partition_responses[0].error_code)  # type: ignore[attr-defined]

    with client_of(bootstrap, timeout_ms=10_000) as made:
        made.fetch_metadata([topic])
        request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=5000, topic_data=data)
        assert made.call("produce", 1, lambda _: request, handle, versions=range(9, 12)) == 0


def groups(scenario: Scenario) -> None:
    """kafka-consumer-groups runs while kafka-console-consumer has a group."""
    run = scenario.run
    create(scenario, "paid")
    write(scenario, "paid")
    run("consumer-groups", "--describe", "--group", "none")
    run("consumer-groups", "--delete", "--group", "none")
    reading = ("--topic", "paid", "--group", "g1", "--from-beginning")
    run("console-consumer", *reading, "--max-messages", "10", "--timeout-ms", "20000")
    scenario.until(lambda text: "Empty" in text, "consumer-groups", "--describe", "--group", "g1", "--state")
    run("console-consumer", *reading, "--timeout-ms", "2000")
    one = ("consumer-groups", "--group", "g1")
    run("consumer-groups", "--list")
    run("consumer-groups", "--list", "--state")
    run("consumer-groups", "--list", "--type", "classic")
    scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
    run(*one, "--describe")
    run(*one, "--describe", "--offsets", "--verbose")
    run(*one, "--describe", "--members")
    for how in (("--to-earliest",), ("--shift-by", 2), ("--to-offset", 1), ("--to-latest",), ("--to-offset", 99)):
        run(*one, "--reset-offsets", "--topic", "paid", *how, "--dry-run")
    run(*one, "--reset-offsets", "--all-topics", "--to-earliest", "--execute")
    run(*one, "--reset-offsets", "--all-topics", "--to-current", "--export")
    run(*one, "--describe")
    run(*one, "--delete-offsets", "--topic", "paid:0")
    run(*one, "--delete-offsets", "--topic", "none")
    run(*one, "--delete")
    run("consumer-groups", "--list")
    delete(scenario, "paid")


def readers(scenario: Scenario) -> None:
    """The console consumer, the verifiable one and the measuring one run in groups of both protocols. kafka-groups lists them."""
    run, topic = scenario.run, "read"
    create(scenario, topic)
    write(scenario, topic, "aa")  # in one partition, so that one poll finds everything
    for name, protocol in (("old", "classic"), ("new", "consumer")):
        setting = ("--command-property", f"group.protocol={protocol}")
        reading = ("--topic", topic, "--group", name, "--from-beginning", *setting)
        run("console-consumer", *reading, "--max-messages", 10, "--timeout-ms", 20_000)
        described = ("consumer-groups", "--describe", "--group", name)
        scenario.until(lambda text: "Empty" in text, *described, "--state")
        run("console-consumer", *reading, "--timeout-ms", 1500)
        scenario.until(lambda text: "Empty" in text, *described, "--state", "--verbose")
        run(*described)
        run(*described, "--members", "--verbose")
        verifiable = ("--topic", topic, "--group-id", f"v-{name}", "--group-protocol", protocol, "--max-messages", 10, "--verbose")
        text = scenario.tools.run("verifiable-consumer", *scenario.server, *verifiable)
        # If the consumer is assigned before its metadata has the topic's name, it starts with nothing.
        scenario.note("verifiable-consumer", verifiable, re.sub(r'.*"partitions_assigned","partitions":\[\]}\n', "", text))
        measured = ("--topic", topic, "--num-records", 10, "--group", f"p-{name}", "--timeout", 20_000, *setting)
        run("consumer-perf-test", *measured)
        _wait(scenario, lambda text: "Empty" in text, "consumer-groups", "--describe", "--group", f"p-{name}", "--state")
        run("consumer-groups", "--describe", "--group", f"v-{name}", "--offsets")
    filters = [(), ("--consumer",), ("--share",), ("--streams",), ("--protocol", "consumer"), ("--protocol", "connect")]
    for chosen in [*filters, ("--group-type", "classic"), ("--group-type", "consumer"), ("--group-type", "unheard")]:
        run("groups", "--list", *chosen)
    run("consumer-groups", "--list", "--state", "Empty,Stable", "--type", "consumer")
    run("consumer-groups", "--describe", "--all-groups", "--state")
    run("verifiable-consumer", "--topic", topic, "--group-id", "v-bad", "--group-protocol", "consumer", "--session-timeout", 10)
    run("consumer-groups", "--delete", "--group", "new", "--group", "p-new", "--group", "v-old", "--group", "none")
    run("groups", "--list")
    run("consumer-groups", "--delete", "--all-groups")
    delete(scenario, topic)


def members(scenario: Scenario) -> None:
    """Members of both protocols, and static members, forbid some operations on their groups."""
    run, topic = scenario.run, "shared"
    create(scenario, topic)
    write(scenario, topic)
    pause = scenario.tools.oracle.jvm.java.time.Duration.ofMillis(100)
    for protocol in ("classic", "consumer"):
        name = f"m-{protocol}"
        settings = {"group_protocol": protocol, "group_id": name, "group_instance_id": f"i-{protocol}", "client_id": "reader"}
        with client(scenario, "Consumer", **settings, auto_offset_reset="earliest", enable_auto_commit="false") as consumer:
            consumer.subscribe(scenario.tools.oracle.jvm.java.util.List.of(topic))
            deadline = time.monotonic() + PATIENCE_S
            while consumer.assignment().size() < 2 or not all(consumer.position(one) == 5 for one in consumer.assignment()):
                consumer.poll(pause)
                assert time.monotonic() < deadline
            consumer.commitSync()
            one = ("consumer-groups", "--group", name)
            scenario.until(lambda text: "Stable" in text, *one, "--describe", "--state")
            run(*one, "--describe")
            run(*one, "--describe", "--members")
            run(*one, "--describe", "--members", "--verbose")
            run(*one, "--reset-offsets", "--all-topics", "--to-earliest", "--execute")
            run(*one, "--delete-offsets", "--topic", topic)
            run(*one, "--delete")
            run("groups", "--list")
        run(*one, "--describe", "--members")
        run(*one, "--describe", "--state")
        everybody = scenario.tools.oracle.java_class("org.apache.kafka.clients.admin.RemoveMembersFromConsumerGroupOptions")()
        with administrator(scenario) as admin:
            admin.removeMembersFromConsumerGroup(name, everybody).all().get()
        scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
        run(*one, "--delete")
    delete(scenario, topic)


def copied(scenario: Scenario) -> None:
    """TransactionalMessageCopier runs between VerifiableProducer and read_committed readers, with and without a group's generation."""
    run, source, target = scenario.run, "from", "to"
    create(scenario, source)
    create(scenario, target)
    write(scenario, source, count=12)
    copier = ("--input-topic", source, "--output-topic", target, "--broker-list", scenario.nodes.bootstrap, "--transaction-size", 5)

    def copy(*arguments: object) -> None:
        told = scenario.tools.run("transactional-message-copier", *copier, *arguments)
        # A poll that finds nothing prints the same once more.
        different = sorted({re.sub(r'"time":"[^"]*"', "time", line) for line in told.splitlines()})
        scenario.note("transactional-message-copier", arguments, "\n".join(different) if "--group-mode" not in arguments else "")

    copy("--input-partition", 0, "--consumer-group", "copy", "--transactional-id", "copy-1")
    copy("--input-partition", 1, "--consumer-group", "copy", "--transactional-id", "copy-1", "--enable-random-aborts")
    copy("--input-partition", 0, "--consumer-group", "again", "--transactional-id", "copy-2", "--use-group-metadata", "--group-mode")
    for name in ("copy", "again"):
        scenario.until(lambda text: "12" in text, "consumer-groups", "--describe", "--group", name)
    reading = ("--topic", target, "--offset", "earliest", "--isolation-level", "read_committed", "--timeout-ms", 20_000)
    for partition in range(2):
        run("console-consumer", *reading, "--partition", partition, "--max-messages", 24)
    run("consumer-groups", "--delete", "--group", "copy", "--group", "again")
    delete(scenario, source, target)


def internal(scenario: Scenario) -> None:
    """The console's formatters and kafka-dump-log show the records that groups and transactions leave in internal topics."""
    run, topic, oracle = scenario.run, "noted", scenario.tools.oracle
    create(scenario, topic)
    write(scenario, topic)  # in both partitions: a consumer that has read everything knows its position in each, and commits both
    for protocol in ("classic", "consumer"):
        reading = ("--topic", topic, "--group", f"noted-{protocol}", "--from-beginning", "--command-property", f"group.protocol={protocol}")
        settings = (
            "--command-property",
            "client.id=noted",
            "--command-property",
            "auto.commit.interval.ms=60000",
        )  # one commit, at the end
        run("console-consumer", *reading, *settings, "--max-messages", 10, "--timeout-ms", 20_000)
        one = ("consumer-groups", "--group", f"noted-{protocol}")
        scenario.until(lambda text: "Empty" in text, *one, "--describe", "--state")
        run(*one, "--reset-offsets", "--topic", f"{topic}:0", "--to-offset", 3, "--execute")
        run(*one, "--delete-offsets", "--topic", f"{topic}:1")
    run(*one, "--delete")
    places = oracle.jvm.java.util.HashMap()
    places.put(
        oracle.java_class("org.apache.kafka.common.TopicPartition")(topic, 0),
        oracle.java_class("org.apache.kafka.clients.consumer.OffsetAndMetadata")(7),
    )
    group = oracle.java_class("org.apache.kafka.clients.consumer.ConsumerGroupMetadata")("noted-txn")
    with client(scenario, "Producer", transactional_id="noted-id", linger_ms=0) as producer:
        producer.initTransactions()
        for ended in (producer.commitTransaction, producer.abortTransaction):
            producer.beginTransaction()
            send(scenario, producer, topic, "value")
            producer.sendOffsetsToTransaction(places, group)
            ended()
            scenario.until(lambda text: "Complete" in text, "transactions", "describe", "--transactional-id", "noted-id")
    for name, internal_topic in (("Offsets", OFFSETS), ("TransactionLog", TRANSACTIONS)):
        place = ("--topic", internal_topic, "--partition", 0, "--offset", "earliest", "--timeout-ms", 4000)
        printer = (*place, "--formatter", f"org.apache.kafka.tools.consumer.{name}MessageFormatter")
        text = scenario.tools.run("console-consumer", *scenario.server, *printer)
        scenario.note("console-consumer", printer, _noted(text))
    for internal_topic, decoder in ((OFFSETS, "--offsets-decoder"), (TRANSACTIONS, "--transaction-log-decoder")):
        [path] = [found for each in scenario.nodes.ids for found in scenario.nodes.log_dir(each).glob(f"{internal_topic}-0/*.log")]
        scenario.note("dump-log", (decoder, internal_topic), _noted(oracle.dump([decoder, "--files", str(path)])))
    run("consumer-groups", "--delete", "--group", "noted-classic", "--group", "noted-txn")
    delete(scenario, topic)


def _noted(text: str) -> str:
    """Return only the records of the scenario `internal`, without times, ids and offsets."""
    # The formatters do not end their lines.
    records = [record for record in text.replace('}{"key"', '}\n{"key"').splitlines() if '"noted-' in record]
    return "\n".join(NOTED.sub("", record.partition("Processed a total")[0]) for record in records)


SCENARIOS: Final = {
    each.__name__: each for each in (groups, transactions, hanging, readers, members, copied, internal, share_groups, streams_groups)
}


def kept() -> dict[str, list[list[Any]]]:
    """Return scenario → its commands, and what Apache Kafka's tools printed."""
    return dict(json.loads(FILE.read_text()))


def main(names: list[str]) -> None:
    """Write the file."""
    from tests.support.kafka.real_broker import RealCluster

    answers = kept() if FILE.exists() else {}
    with tempfile.TemporaryDirectory() as work, Oracle() as oracle:
        nodes = KopsNodes(Path(work))
        tools = KafkaTools(oracle)
        cluster = RealCluster(oracle, nodes.work / "run", [nodes.prepare(node_id) for node_id in nodes.ids]).start()
        try:
            for name in names or SCENARIOS:
                scenario = Scenario(tools, nodes, Path(work))
                SCENARIOS[name](scenario)
                answers[name] = told(scenario)
        finally:
            cluster.kill()
    FILE.write_text(json.dumps({name: answers[name] for name in SCENARIOS if name in answers}, indent=1) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
