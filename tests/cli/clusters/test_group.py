"""`kops group` and `kops topic consume --group` on a cluster of kops, when something is wrong: files, disks, groups without offsets.

`tests/differential/clients` tests the same commands on Apache Kafka and on kops.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kops.client.client import Client
from kops.client.topics import PartitionInfo, list_topics
from kops.cluster.embedded import Cluster
from kops.cluster.questions import client_of
from tests.cli.clusters.conftest import Kops
from tests.cli.conftest import PROJECT
from tests.support.patience import until


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(
        brokers=1, topics=["orders:1"], config={"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}
    ) as made:
        yield made


def describe(client: Client) -> list[PartitionInfo]:
    """Return the partitions of the only topic."""
    [topic] = list_topics(client)
    return topic.partitions


@pytest.mark.parametrize(
    ("content", "code", "words"),
    [
        (None, 3, "FILE: no such file"),
        (b"\xff", 1, "FILE: not UTF-8 text (byte 0)"),
        (b"orders,0\n", 1, "FILE:1: 2 fields, but topic,partition,offset is needed"),
        (b"\norders,0,none\n", 1, "FILE:2: partition and offset must be numbers: 0, none"),
        (b"orders,7,1\nnowhere,0,1\n", 3, "g: FILE: no such partition: orders-7, nowhere-0"),
        (b"", 3, "g: FILE has no offsets of this group"),
    ],
)
def test_a_wrong_file_is_named(on: Kops, tmp_path: Path, content: bytes | None, code: int, words: str) -> None:
    file = tmp_path / "offsets.csv"
    if content is not None:
        file.write_bytes(content)
    said = on("group", "import", str(file), "--group", "g", "--execute", code=code).err.splitlines()[-1]
    assert said == f"kops: error: {words}".replace("FILE", str(file))
    named = on("group", "reset", "g", "--from-file", str(file), code=code).err.splitlines()[-1]
    assert named.count(str(file)) == 1


@pytest.mark.parametrize(("topic", "hint"), [("orders-0", "; for the partition of orders, write orders:0"), ("nowhere-0", ""), ("-0", "")])
def test_a_partition_is_written_with_a_colon(on: Kops, topic: str, hint: str) -> None:
    told = on("group", "reset", "g", f"--topic={topic}", "--to-earliest", code=3).err.splitlines()[-1]
    assert told == f"kops: error: no such topic: {topic}{hint}"


def test_a_full_disk_leaves_no_file_and_commits_nothing(on: Kops, cluster: Cluster, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.write_text("x" * 100 + "\n" + "y\n" * 10)
    on("topic", "produce", "orders", str(lines))
    target = tmp_path / "out"
    consume = (
        f"{sys.executable} -m kops topic consume orders --group full --from-beginning -e --format kafka -b {cluster.bootstrap_servers}"
    )
    for output, name in ((f"-o {target}", str(target)), (f"> {tmp_path / 'stdout'}", "standard output")):
        script = f"ulimit -f 0; export PYTHONDONTWRITEBYTECODE=1; {consume} {output}"
        ran = subprocess.run(["bash", "-c", script], cwd=PROJECT, capture_output=True, text=True, timeout=120, check=False)
        assert (ran.returncode, ran.stderr.splitlines()[-1]) == (1, f"kops: error: cannot write to {name}: File too large")
    assert not target.exists()
    told = on("group", "lag", "full")
    assert (told.err.splitlines()[-1], told.text) == ("full: no committed offsets", "")


@pytest.mark.parametrize("what", ["lag", "describe"])
def test_a_group_is_watched(on: Kops, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    on("group", "reset", "watched", "--topic", "orders", "--to-earliest", "--execute")
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            raise KeyboardInterrupt

    # Only in this module: threads of other tests use `time.sleep`, too.
    monkeypatch.setattr("kops.cli.commands.group.choosing.time", SimpleNamespace(sleep=pause))
    ran = on("group", what, "watched", "--watch", "0.5", code=130)
    assert pauses == [0.5] * 3
    assert ran.text.count("watched") == 3
    pauses.clear()
    heading, *lines = on("group", what, "watched", "--watch", "0.5", "--format", "csv", code=130).text.splitlines()
    assert heading.startswith("group,topic,") and len(lines) >= 3 and heading not in lines


def test_a_search_for_hanging_transactions_does_not_wait_for_a_leader(kops: Kops) -> None:
    with Cluster(brokers=3, topics=["orders:3:1"]) as three:
        with client_of(three.bootstrap_servers, timeout_ms=60_000) as client:
            leaders = {part.partition: part.leader or 0 for part in describe(client)}
        lost = next(part for part, leader in leaders.items() if leader != 1)
        three.kill_broker(leaders[lost])
        with client_of(three.bootstrap_servers, timeout_ms=60_000) as client:
            until(lambda: describe(client)[lost].leader is None)
        patience = ["--command-property", "default.api.timeout.ms=600000"]
        ran = kops("txn", "find-hanging", "-b", three.bootstrap_servers, *patience)
    assert ran.code == 1
    assert f"kops: warning: orders-{lost}: it has no leader\n" in ran.err
    assert ran.err.endswith("no hanging transactions\n")
