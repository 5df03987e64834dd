"""The demo's part about groups and transactions: a member is killed and goes on, a reader of what is committed sees no aborted record.

The member is `kops topic consume --group`, a process that is killed with -9 in the middle. The transactions are librdkafka's.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from confluent_kafka import Consumer, Producer, TopicPartition

from tools.demo_show import PROJECT, Demo

TOPIC, GROUP = "payments", "billing"
COUNT = 2_000
WAIT_S = 30


def run_groups(demo: Demo) -> None:
    """A consumer group, then two transactions."""
    demo.title("4. A consumer group goes on at its offsets when a member is killed")
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
    demo.check(sorted(first + rest) == sorted(written), f"{len(first):,} records before the kill, {len(rest):,} after it: each one once")
    demo.kops(f"group describe {GROUP}", code=0)
    demo.facts.append(f"a member of a group was killed after {len(first):,} records; the next one went on behind them")
    transactions(demo, bootstrap)


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
    demo.check(seen == ["credit 7", "debit 7", ""], "a reader of what is committed sees the first transaction only")
