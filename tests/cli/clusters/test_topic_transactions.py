"""`kops topic produce --transactional-id` on a cluster of kops: it writes all records or none, and reports a failure.

`tests/differential/clients/commands/test_txn_commands.py` does the same on Apache Kafka.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kops.client.client import Client
from kops.client.coordinators.transactions import TransactionDescription, describe_transactions
from kops.client.producer.faces.commands import CommandProducer, Transaction
from kops.client.settings import ClientSettings
from kops.cluster.embedded import Cluster
from kops.cluster.questions import client_of
from tests.cli.clusters.conftest import Kops
from tests.cli.conftest import PROJECT, Ran
from tests.support.patience import until

TOPIC = "paid"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, topics=[f"{TOPIC}:2"]) as made:
        yield made


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    path = tmp_path / "lines"
    os.mkfifo(path)
    return path


@pytest.fixture
def txn(request: pytest.FixtureRequest) -> str:
    """Provide a transactional id. Each record of the test begins with it."""
    return str(request.node.name)


def said(ran: Ran) -> str:
    """Return the last line. On a slow machine, lines about waiting come before it."""
    return ran.err.splitlines()[-1]


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.text.splitlines()]


def read(on: Kops, txn: str, isolation: str = "read_committed") -> list[str]:
    ran = on("topic", "consume", TOPIC, "--from-beginning", "-e", "--isolation", isolation, "--format", "kafka")
    return sorted(line for line in ran.text.splitlines() if line.startswith(txn))


def state(cluster: Cluster, txn: str) -> str:
    with client_of(cluster.bootstrap_servers, timeout_ms=60_000) as client:
        found = describe_transactions(client, [txn])[txn]
    return found.state if isinstance(found, TransactionDescription) else found.name


def write(tmp_path: Path, *lines: str) -> str:
    path = tmp_path / "input"
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def test_all_records_of_a_run_are_committed_together(on: Kops, cluster: Cluster, txn: str, tmp_path: Path) -> None:
    lines = [f"{txn}-{number}" for number in range(20)]
    ran = on("topic", "produce", TOPIC, write(tmp_path, *lines), "-K", "-", "--transactional-id", txn, "--format", "jsonl")
    assert (said(ran), sum(row["records"] for row in rows(ran))) == (f"the transaction of {txn} is committed", 20)
    until(lambda: state(cluster, txn) == "CompleteCommit")
    records = rows(on("topic", "consume", TOPIC, "--from-beginning", "-e", "--key-encoding", "utf8", "--batch"))
    mine = [record["batch"] for record in records if record["key"] == txn]
    assert len(mine) == 20
    with client_of(cluster.bootstrap_servers, timeout_ms=60_000) as client:
        found = describe_transactions(client, [txn])[txn]
    assert isinstance(found, TransactionDescription)
    assert {batch["producerId"] for batch in mine} == {found.producer_id}
    # Without input there is nothing to commit, and no message.
    assert "committed" not in on("topic", "produce", TOPIC, write(tmp_path), "--transactional-id", txn).err


def test_a_wrong_line_aborts_what_was_sent(on: Kops, cluster: Cluster, txn: str, tmp_path: Path) -> None:
    document = json.dumps({"value": f"{txn}-1"})
    produce = ["topic", "produce", TOPIC, write(tmp_path, document, "no json"), "--input", "jsonl", "--value-encoding", "utf8"]
    ran = on(*produce, "--transactional-id", txn, "--format", "jsonl", "--command-property", "linger.ms=0", code=1)
    assert ran.err.splitlines()[-1].endswith("line 2 is not JSON: Expecting value (column 1)")
    assert f"{TOPIC}: 1 record was not committed: the transaction was aborted" in ran.err
    [row] = rows(ran)
    assert (row["records"], row["failed"]) == (0, 1)
    assert read(on, txn) == []
    assert state(cluster, txn) in ("Empty", "PrepareAbort", "CompleteAbort")


def test_a_record_that_is_too_large_aborts_the_others(on: Kops, txn: str, tmp_path: Path) -> None:
    file = write(tmp_path, f"{txn}-1", "x" * 2000)
    settings = ["--command-property", "max.request.size=1000", "--command-property", "linger.ms=0"]
    ran = on("topic", "produce", TOPIC, file, "--transactional-id", txn, *settings, "--format", "jsonl", code=1)
    assert "2 records were not committed: a record of 2086 bytes is larger than max.request.size=1000 (MESSAGE_TOO_LARGE)" in ran.err
    assert [(row["failed"], row["error"]) for row in rows(ran)] == [(2, "MESSAGE_TOO_LARGE")]
    assert read(on, txn) == []


def test_a_later_producer_fences_an_earlier_one(on: Kops, cluster: Cluster, txn: str, pipe: Path) -> None:
    def fence() -> None:
        with pipe.open("wb", buffering=0) as lines:
            lines.write(f"{txn}-1\n".encode())
            until(lambda: state(cluster, txn) == "Ongoing")
            settings = {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": txn}
            with Client(ClientSettings.from_properties(settings)) as client:
                CommandProducer(client)
            lines.write(f"{txn}-2\n".encode())

    writer = threading.Thread(target=fence)
    writer.start()
    ran = on("topic", "produce", TOPIC, str(pipe), "--transactional-id", txn, code=1)
    writer.join()
    assert f"another producer has started with {txn}, or the transaction took longer than transaction.timeout.ms=60000" in ran.err
    assert read(on, txn) == []


def test_ctrl_c_aborts(on: Kops, cluster: Cluster, txn: str) -> None:
    command = [sys.executable, "-m", "kops", "topic", "produce", TOPIC, "--transactional-id", txn, "-b", cluster.bootstrap_servers]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None and process.stderr is not None
        process.stdin.write(f"{txn}-1\n".encode())
        process.stdin.flush()
        until(lambda: state(cluster, txn) == "Ongoing")
        until(lambda: len(read(on, txn, "read_uncommitted")) == 1)
        os.kill(process.pid, signal.SIGINT)
        assert process.wait(60) == 130
        told = process.stderr.read().decode()
    assert f"the transaction of {txn} is aborted: readers with isolation level read_committed get none of its records\n" in told
    until(lambda: state(cluster, txn) == "CompleteAbort")
    assert (read(on, txn), read(on, txn, "read_uncommitted")) == ([], [f"{txn}-1"])


def test_ctrl_c_while_it_commits_waits_for_the_answer(on: Kops, txn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Transaction.end
    interrupts = [1, 0, 2, 2]

    def interrupted(self: Transaction, *, commit: bool) -> None:
        """Raise Ctrl-C once: the command still waits for the answer. Twice: it gives up."""
        if interrupts.pop(0):
            raise KeyboardInterrupt
        end(self, commit=commit)

    monkeypatch.setattr(Transaction, "end", interrupted)
    produce = ["topic", "produce", TOPIC, write(tmp_path, f"{txn}-1"), "--transactional-id", txn]
    ran = on(*produce)
    assert said(ran) == f"the transaction of {txn} is committed"
    assert read(on, txn) == [f"{txn}-1"]
    ran = on(*produce, code=130)
    assert f"1 record was not committed: interrupted: whether they are committed is not known; kops txn describe {txn} shows" in ran.err


def test_a_commit_that_nobody_answers_is_not_known(kops: Kops, txn: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end = Transaction.end
    with Cluster(brokers=1, topics=[f"{TOPIC}:1"]) as alone:

        def end_after_a_kill(self: Transaction, *, commit: bool) -> None:
            alone.kill_broker(1)
            self._client.settings = replace(self._client.settings, default_api_timeout_ms=500)
            end(self, commit=commit)

        monkeypatch.setattr(Transaction, "end", end_after_a_kill)
        ran = kops("topic", "produce", TOPIC, write(tmp_path, f"{txn}-1"), "--transactional-id", txn, "-b", alone.bootstrap_servers)
    assert ran.code == 4
    assert "1 record was not committed: " in ran.err
    assert f"whether they are committed is not known; kops txn describe {txn} shows the outcome" in ran.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--transactional-id", "x", "--acks", "1"], 2, "transactional.id=x: a transactional producer needs acks=all"),
        (["--transactional-id", ""], 2, "transactional.id: must not be empty"),
        (["--transaction-timeout-ms", "5"], 2, "--transaction-timeout-ms: only with --transactional-id"),
        (
            ["--transactional-id", "x", "--transaction-timeout-ms", "99999999"],
            1,
            "transaction.timeout.ms=99999999: the transaction timeout is too large",
        ),
        (["--transactional-id", "x", "-p", "7"], 3, f"{TOPIC} has no partition 7, it has 2"),
    ],
)
def test_what_is_not_allowed(on: Kops, tmp_path: Path, options: list[str], code: int, words: str) -> None:
    ran = on("topic", "produce", TOPIC, write(tmp_path, "1"), *options, code=code)
    assert said(ran).startswith(f"kops: error: {words}")


def test_a_transaction_that_is_not_there(on: Kops, cluster: Cluster, txn: str, tmp_path: Path) -> None:
    """`kops txn abort` does not fence a misspelt id, because that would create it."""
    assert said(on("txn", "abort", "--transactional-id", txn, code=3)) == f"kops: error: {txn}: there is no such transactional id"
    assert state(cluster, txn) == "TRANSACTIONAL_ID_NOT_FOUND"
    on("topic", "produce", TOPIC, write(tmp_path, f"{txn}-1"), "--transactional-id", txn)
    until(lambda: state(cluster, txn) == "CompleteCommit")
    assert said(on("txn", "abort", "--transactional-id", txn)) == f"{txn}: no transaction was open, and its producer is fenced"
    [described] = rows(on("txn", "describe", txn, "--format", "jsonl"))
    assert (described["state"], described["duration_ms"]) == ("Empty", None)
    wrong = said(on("txn", "abort", "--topic", "nowhere", "--partition", "0", "--start-offset", "1", code=3))
    assert wrong == "kops: error: nowhere-0: this broker has no such topic or partition"
    words = "kops: error: --state Done: not allowed; allowed: Empty, Ongoing, PrepareCommit, "
    assert on("txn", "list", "--state", "Done", code=2).err.startswith(words)
    assert "--transactional-id-pattern (: not a valid RE2 expression" in on("txn", "list", "--transactional-id-pattern", "(", code=2).err
    assert txn in [row["transactional_id"] for row in rows(on("txn", "list", "--state", "empty", "--format", "jsonl"))]
