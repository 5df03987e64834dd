"""The demo's part about groups and transactions: a member is killed and continues, a reader of committed records sees no aborted ones.

The member is `kops topic consume --group`, a process that is killed with -9 in the middle. The transactions are librdkafka's. Last, a
transaction hangs: its coordinator does not know of it, so nobody would ever end it. Current clients and brokers prevent that. The demo
turns the broker's check off and writes the batch with a raw request.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from kops.cli.running import exit_codes
from kops.cluster.questions import client_of
from kops.protocol.declaration import Message
from kops.protocol.messages import ProduceRequest
from kops.protocol.messages.produce_request import PartitionProduceData, TopicProduceData
from kops.records import BatchBuilder
from tools.demo_show import PROJECT, Demo

TOPIC, GROUP = "payments", "billing"
COUNT = 2_000
WAIT_S = 30


def run_groups(demo: Demo) -> None:
    """A consumer group, then transactions that are committed, aborted and left hanging."""
    demo.title("4. A consumer group continues at its offsets when a member is killed")
    demo.kops(f"topic create {TOPIC} --partitions 2 --replication-factor 3", code=0)
    bootstrap = demo.environment["BOOTSTRAP_SERVERS"]
    written = [f"payment {number}" for number in range(COUNT)]
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    for value in written[: COUNT // 2]:
        producer.produce(TOPIC, value)
    producer.flush(WAIT_S)
    first = read_and_die(demo, bootstrap)
    for value in written[COUNT // 2 :]:
        producer.produce(TOPIC, value)
    producer.flush(WAIT_S)
    line = f"topic consume {TOPIC} --group {GROUP} {STATIC} --until-end --format kafka"
    started = time.monotonic()
    rest = demo.run(line).stdout.splitlines()
    demo.took.append((line, time.monotonic() - started))
    print(f"$ kops {line}\n  {rest[0]}\n  … {len(rest) - 1} more lines\n")
    demo.check(
        sorted(first + rest) == sorted(written), f"{len(first):,} records before the kill, {len(rest):,} after it: each of them once"
    )
    demo.kops(f"group describe {GROUP}", code=0)
    demo.facts.append(f"a member of a group was killed after {len(first):,} records; the next one continued after them")
    transactions(demo, bootstrap)
    hanging(demo, bootstrap)


STATIC = "--command-property group.instance.id=worker-1"


def read_and_die(demo: Demo, bootstrap: str) -> list[str]:
    """What a member prints until its offsets are committed, and it is killed."""
    line = f"topic consume {TOPIC} --group {GROUP} {STATIC} --from-beginning --format kafka"
    command = [*line.split(), "--command-property", "auto.commit.interval.ms=200"]
    print(f"$ kops {line} &")
    environment = {**os.environ, "PYTHONPATH": str(PROJECT), **demo.environment}
    with subprocess.Popen(
        [sys.executable, "-m", "kops", *command], cwd=demo.folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as member:
        reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP, "log_level": 2})
        deadline = time.monotonic() + WAIT_S
        while sum(max(one.offset, 0) for one in reader.committed([TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)])) < COUNT // 2:
            if time.monotonic() > deadline:
                demo.check(False, "the member commits what it has printed")
            time.sleep(0.05)
        reader.close()
        member.kill()
        assert member.stdout is not None
        printed = member.stdout.read().splitlines()
    demo.note(f"kill -9 {member.pid}: the member, after {len(printed):,} records")
    return printed


def transactions(demo: Demo, bootstrap: str) -> None:
    """One is committed, one aborted."""
    demo.title("5. One transaction is committed, one aborted")
    demo.kops("topic create ledger --partitions 1 --replication-factor 3", code=0)
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "teller", "log_level": 2})
    producer.init_transactions(WAIT_S)
    for values, is_good in ((("credit 7", "debit 7"), True), (("credit 9", "debit 9"), False)):
        producer.begin_transaction()
        for value in values:
            producer.produce("ledger", value)
        producer.flush(WAIT_S)
        (producer.commit_transaction if is_good else producer.abort_transaction)(WAIT_S)
        demo.note(f"{', '.join(values)}: {'committed' if is_good else 'aborted'}")
    line = "topic consume ledger --from-beginning --until-end --format kafka --isolation-level"
    demo.kops(f"{line} read_uncommitted", code=0)
    demo.kops(f"{line} read_committed", code=0)
    seen = demo.run(f"{line} read_committed").stdout.split("\n")
    demo.check(seen == ["credit 7", "debit 7", ""], "a reader of committed records sees only the first transaction")


def hanging(demo: Demo, bootstrap: str) -> None:
    """A transaction that nobody would end holds back readers of committed records. The files show it."""
    demo.title("6. One transaction is left hanging, found in the files and aborted")
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    leader = admin.list_topics("ledger", WAIT_S).topics["ledger"].partitions[0].leader
    broker = ConfigResource(ConfigResource.Type.BROKER, str(leader), incremental_configs=[UNVERIFIED])
    for future in admin.incremental_alter_configs([broker]).values():
        future.result(WAIT_S)
    write_without_coordinator(bootstrap, leader)
    demo.note("debit 1 is written in a transaction that its coordinator has never heard of, as a bug of a client or broker before 3.6 does")
    produce(bootstrap, "debit 3")
    line = "topic consume ledger --from-beginning --until-end --format kafka --isolation-level read_committed"
    demo.check("debit 3" not in demo.run(line).stdout, "debit 3, written after it, is hidden from readers of committed records")
    demo.kops("log txns --hanging cluster", code=exit_codes.PROBLEMS, having=("kops txn abort --topic ledger",))
    rows = [json.loads(row) for row in demo.run("log txns --hanging --format jsonl cluster").stdout.splitlines()]
    demo.check([row["topic"] for row in rows] == ["ledger"], "it is the only one that hangs")
    demo.kops(rows[0]["command"].removeprefix("kops "), code=0)
    seen = demo.run(line).stdout.splitlines()
    demo.check(seen == ["credit 7", "debit 7", "debit 3"], "readers of committed records continue, and don't see debit 1")
    demo.facts.append("a hanging transaction was found in the files, and aborted by the command that was shown with it")


UNVERIFIED = ConfigEntry("transaction.partition.verification.enable", "false", incremental_operation=AlterConfigOpType.SET)


def produce(bootstrap: str, value: str) -> None:
    """Write a record outside of transactions."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 2})
    producer.produce("ledger", value)
    producer.flush(WAIT_S)


def write_without_coordinator(bootstrap: str, leader: int) -> None:
    """Write a batch of a transaction that no coordinator knows, as soon as its leader has heard of the setting."""
    builder = BatchBuilder(producer_id=999, producer_epoch=0, base_sequence=0, transactional=True)
    builder.append(int(time.time() * 1000), None, b"debit 1")
    data = [TopicProduceData(name="ledger", partition_data=[PartitionProduceData(index=0, records=builder.build())])]
    request = ProduceRequest(transactional_id="lost", acks=-1, timeout_ms=5000, topic_data=data)

    def error(response: Message) -> int:
        return int(response.responses[0].partition_responses[0].error_code)  # type: ignore[attr-defined]

    deadline = time.monotonic() + WAIT_S
    with client_of(bootstrap, timeout_ms=10_000) as client:
        client.fetch_metadata(["ledger"])
        while client.call("produce", leader, lambda _: request, error, versions=range(9, 12)):
            if time.monotonic() > deadline:
                raise TimeoutError("the broker still checks transactions")
            time.sleep(0.05)
