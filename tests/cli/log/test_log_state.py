"""`kops log offsets`, `txnstate` and `txns` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.records import Batch, BatchBuilder, scan
from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]


@pytest.fixture(scope="module")
def node() -> str:
    """Provide a broker's log directory, stopped while a transaction was open."""
    return str(corpus.load("cluster-4.3.0").root / "nodes" / "n1")


def test_offsets(kops: Kops, node: str) -> None:
    ran = kops("log", "offsets", "--group", "standalone-grp", node)
    assert ran.code == 0
    head, committed, pending = ran.text.splitlines()
    assert head.split() == ["GROUP", "TOPIC", "PARTITION", "OFFSET", "LAG", "STATE", "COMMITTED", "EXPIRES", "METADATA", "NOTE"]
    assert committed.split()[:6] == ["standalone-grp", "orders-epochs", "0", "9", "79", "committed"]
    assert pending.split()[:6] == ["standalone-grp", "orders-epochs", "0", "12", "76", "pending"]
    document = json.loads(kops("log", "offsets", "--format", "json", node).text)
    assert document["schema"] == "kops.offsets/v1"
    assert {row["state"] for row in document["offsets"]} == {"committed", "pending", "deleted"}
    assert [row["lag"] for row in document["offsets"] if row["group"] == "kip848-static"] == [58, 25, 34, 8]


def test_offsets_as_of_a_time(kops: Kops, node: str) -> None:
    def offset(at: str) -> list[int]:
        ran = kops("log", "offsets", "--group", "standalone-grp", "--at", at, "--format", "jsonl", node)
        return [json.loads(line)["offset"] for line in ran.text.splitlines()]

    assert offset("2026-11-21T10:03:06Z") == []
    assert offset("2026-11-21T10:03:07Z") == [7]
    assert offset("2026-11-21T10:03:18Z") == [7, 9]
    assert offset("1795255398211") == [9]
    assert kops("log", "offsets", "--at", "yesterday", node).code == 16


def test_offsets_as_a_file_for_kafkas_tool(kops: Kops, node: str, tmp_path: Path) -> None:
    file = tmp_path / "reset.csv"
    assert kops("log", "offsets", "--group", "classic-grp", "--as", "reset-csv", "-o", str(file), node).code == 0
    assert file.read_text() == "sensor.readings-multi,0,20\nsensor.readings-multi,1,20\nsensor.readings-multi,2,0\n"
    lines = kops("log", "offsets", "--as", "reset-csv", node).text.splitlines()
    assert "standalone-grp,orders-epochs,0,9" in lines
    assert not any(line.startswith(("to-delete", "kip848-gone")) for line in lines)
    assert kops("log", "offsets", "--as", "csv", node).code == 16
    for group in ("log", "scan"):
        ran = kops(group, "offsets", "--as", "reset-csv", "--format", "json", node)
        assert (ran.code, ran.text, ran.err) == (16, "", "kops: error: give only one of --as reset-csv and --format json\n")


@pytest.mark.parametrize("shape", [[], ["--format", "json"], ["--as", "reset-csv"]])
def test_offsets_of_groups_that_have_none(kops: Kops, node: str, shape: list[str]) -> None:
    none = "the group has no offsets in these files"
    ran = kops("log", "offsets", "--group", "nosuch", *shape, node)
    assert (ran.code, ran.err) == (8, f"kops: error: nosuch: {none}\n")
    ran = kops("log", "offsets", "--group", "classic-grp", "--group", "nosuch", *shape, node)
    assert (ran.code, ran.err) == (8, f"kops: warning: nosuch: {none}\n")
    assert "sensor.readings-multi" in ran.text


def test_offsets_when_the_log_of_a_partition_can_not_be_read(kops: Kops, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The offsets are in another log. Only the lag is not known."""
    whole = [json.loads(line) for line in kops("log", "offsets", "--format", "jsonl", node).text.splitlines()]
    original = OsFiles.open
    refused = f"{node}/orders-epochs-0/00000000000000000075.log"

    def open_(self: OsFiles, path: str, *mode: str) -> object:
        if path == refused:
            raise PermissionError(13, "Permission denied", path)
        return original(self, path, *mode)  # type: ignore[arg-type]

    monkeypatch.setattr(OsFiles, "open", open_)
    ran = kops("log", "offsets", "--format", "jsonl", node)
    assert (ran.code, ran.err) == (8, f"kops: warning: {refused}: Permission denied; the lag of its partition is not known\n")
    expected = [row | {"lag": None} if row["topic"] == "orders-epochs" else row for row in whole]
    assert [json.loads(line) for line in ran.text.splitlines()] == expected != whole


def test_offsets_past_damage(kops: Kops, tmp_path: Path) -> None:
    folder = corpus.load("cluster-4.3.0").copy(tmp_path / "n1", "nodes/n1")
    path = folder / "__consumer_offsets-1" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    ran = kops("log", "offsets", str(path.parent))
    assert ran.code == 4
    assert ran.err.startswith(f"kops: warning: {path}:0 [0-0]: left out: the checksum is wrong")
    assert "classic-grp" in ran.text
    assert kops("log", "offsets", str(folder / "orders-epochs-0")).code == 16
    assert kops("log", "offsets", str(folder / "nothing")).code == 8


@pytest.mark.parametrize("command", ["txnstate", "dump"])
def test_a_torn_tail_whose_last_offset_is_not_known(kops: Kops, command: str, tmp_path: Path) -> None:
    copy = corpus.load("cluster-4.3.0").copy(tmp_path / "copy", "nodes/n1/__transaction_state-0")
    log = copy / "00000000000000000000.log"
    with OsFiles(read_only=True).open(str(log)) as file:
        last = [item for item in scan(file) if isinstance(item, Batch)][-1]
    with open(log, "r+b") as file:
        file.truncate(last.position + 20)  # before the last offset's place in the header
    ran = kops("log", command, str(log if command == "dump" else copy))
    assert ran.code == 4
    assert (f" (offsets {last.base_offset} on)\n" if command == "dump" else f" [{last.base_offset} on]: left out: ") in ran.err


def test_records_that_are_not_the_coordinators(kops: Kops, node: str, tmp_path: Path) -> None:
    """If a folder has another name, the command reads it as the log that it was asked for."""
    copy = corpus.load("cluster-4.3.0").copy(tmp_path / "copy", "nodes/n1/orders-epochs-0")
    ran = kops("log", "offsets", "--format", "jsonl", str(copy))
    rows = [json.loads(line) for line in ran.text.splitlines()]
    assert ran.code == 4
    assert {row["state"] for row in rows} == {"raw"}
    assert rows[0]["raw"]["key"] == "a2V5LTA="
    assert "offset 0 of copy can't be decoded: unknown version 27493 of the key" in kops("log", "txnstate", str(copy)).text


def test_txnstate(kops: Kops, node: str) -> None:
    rows = [json.loads(line) for line in kops("log", "txnstate", "--format", "jsonl", node).text.splitlines()]
    assert [(row["transactional_id"], row["state"]) for row in rows] == [
        ("cluster-tx-2", "CompleteCommit"),
        ("cluster-tx-4", "CompleteAbort"),
        ("cluster-tx-1", "CompleteCommit"),
        ("cluster-tx-3", "Ongoing"),
    ]
    assert rows[3]["partitions"] == ["__consumer_offsets-2", "sensor.readings-multi-1"]
    ran = kops("log", "txnstate", "--state", "Ongoing", "--format", "csv", node)
    assert [line.split(",")[0] for line in ran.text.splitlines()] == ["transactional_id", "cluster-tx-3"]
    assert kops("log", "txnstate", "--state", "ongoing", "--format", "csv", node).text == ran.text
    ran = kops("log", "txnstate", "--transactional-id", "none", node)
    assert (ran.code, ran.text, ran.err) == (8, "", "kops: error: none: there is no such id in these files\n")
    assert kops("log", "txnstate", "--transactional-id", rows[0]["transactional_id"], node).code == 0
    ran = kops("log", "txnstate", "--state", "Open", node)
    assert (ran.code, "allowed: Empty, Ongoing" in ran.err) == (16, True)


def test_txns(kops: Kops, node: str) -> None:
    ran = kops("log", "txns", node)
    assert ran.code == 0
    assert ran.err == "2 open, 0 hanging, 4 committed, 3 aborted, 0 empty in 7 partitions\n"
    assert "kops txn abort --transactional-id cluster-tx-3" in ran.text
    ran = kops("log", "txns", "--hanging", "--format", "jsonl", str(corpus.load("broker-dir-4.3.0").root / "crash"))
    assert ran.code == 4
    [row] = [json.loads(line) for line in ran.text.splitlines()]
    assert (row["schema"], row["name"], row["state"]) == ("kops.txns/v1", "user_events-ghost-0", "hanging")
    assert row["command"] == "kops txn abort --topic user_events-ghost --partition 0 --start-offset 134"
    ran = kops("log", "txns", node + "/sensor.readings-multi-1")
    assert ran.code == 0
    assert "kops cannot tell which of them hang" in ran.err


def refuse(monkeypatch: pytest.MonkeyPatch, *refused: str) -> None:
    """Make files and directories unreadable whose paths end like this."""
    original, listed = OsFiles.open, OsFiles.list

    def open_(self: OsFiles, path: str, *mode: str) -> object:
        if path.endswith(refused):
            raise PermissionError(13, "Permission denied", path)
        return original(self, path, *mode)  # type: ignore[arg-type]

    def list_(self: OsFiles, path: str) -> list[str]:
        if path.endswith(refused):
            raise PermissionError(13, "Permission denied", path)
        return listed(self, path)

    monkeypatch.setattr(OsFiles, "open", open_)
    monkeypatch.setattr(OsFiles, "list", list_)


def test_txns_when_a_log_can_not_be_read(kops: Kops, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [json.loads(line) for line in kops("log", "txns", "--format", "jsonl", node).text.splitlines()]
    refused = "sensor.readings-multi-1/00000000000000000000.log"
    refuse(monkeypatch, refused, "orders-epochs-0")
    ran = kops("log", "txns", "--format", "jsonl", node)
    assert ran.code == 8
    assert f"kops: warning: {node}/orders-epochs-0: Permission denied\n" in ran.err
    assert f"kops: warning: {node}/{refused}: Permission denied\n" in ran.err
    assert "in 5 partitions" in ran.err
    left = [row for row in whole if row["name"] != "sensor.readings-multi-1"]
    assert [json.loads(line) for line in ran.text.splitlines()] == left != whole


def test_nothing_hangs_for_sure_if_the_transaction_log_can_not_be_read(kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without all of its partitions nobody knows whether a coordinator knows the transaction."""
    path = str(corpus.load("broker-dir-4.3.0").root / "crash")
    [hanging] = [json.loads(line) for line in kops("log", "txns", "--hanging", "--format", "jsonl", path).text.splitlines()]
    for refused in (max(Path(path).rglob("__transaction_state-*/*.log")), max(Path(path).rglob("__transaction_state-*"))):
        with monkeypatch.context() as patched:
            refuse(patched, str(refused))
            ran = kops("log", "txns", "--format", "jsonl", path)
        assert ran.code == 8
        assert f"{refused}: Permission denied\n" in ran.err
        rows = {row["first_offset"]: row for row in map(json.loads, ran.text.splitlines()) if row["name"] == hanging["name"]}
        found = rows[hanging["first_offset"]]
        assert (found["state"], found["command"]) == ("open", hanging["command"])
        if refused.is_file():
            assert (found["coordinator"], "was not read" in found["note"]) == ("not known", True)


@pytest.mark.parametrize("command", ["offsets", "txnstate"])
def test_a_partition_that_can_not_be_read_is_named(kops: Kops, node: str, command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = kops("log", command, "--format", "csv", node).text.splitlines()
    topic = {"offsets": "__consumer_offsets", "txnstate": "__transaction_state"}[command]
    first, second = f"{topic}-0", f"{topic}-1"
    refuse(monkeypatch, f"{first}/00000000000000000000.log", second)
    ran = kops("log", command, "--format", "csv", node)
    assert ran.code == 8
    assert f"kops: warning: {node}/{first}/00000000000000000000.log: Permission denied\n" in ran.err
    assert f"kops: warning: {node}/{second}: Permission denied\n" in ran.err
    assert ran.text.splitlines() == [line for line in whole if f"{first}," not in line and f"{second}," not in line] != whole
    assert kops("log", command, f"{node}/{second}").code == 8


def add_foreign(partition: Path) -> None:
    """Append records that neither a coordinator nor a controller writes: without a key, of an unknown type, empty."""
    path = max(partition.glob("*.log"))
    with OsFiles(read_only=True).open(str(path)) as log:
        last = [item for item in scan(log) if isinstance(item, Batch)][-1]
    builder = BatchBuilder(base_offset=last.next_offset, partition_leader_epoch=last.partition_leader_epoch)
    for key, value in ((None, b"foreign"), (b"\x00\x63k", b"\x00\x07v"), (b"", None)):
        builder.append(1_795_255_600_000, key, value)
    with open(path, "ab") as file:
        file.write(builder.build())


def damage(partition: Path) -> None:
    """Flip a bit in the middle."""
    path = max(partition.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("command", "topic", "kept"),
    [
        (("offsets",), "__consumer_offsets-1", "standalone-grp"),
        (("txnstate",), "__transaction_state-1", "cluster-tx-3"),
        (("meta", "ls"), "__cluster_metadata-0", "topics"),
        (("txns", "--empty"), "sensor.readings-multi-1", "cluster-tx-3"),
    ],
)
def test_foreign_and_damaged_records_cost_only_themselves(
    kops: Kops, node: str, tmp_path: Path, command: tuple[str, ...], topic: str, kept: str
) -> None:
    folder = corpus.load("cluster-4.3.0").copy(tmp_path / "n1", "nodes/n1")
    whole = kops("log", *command, "--format", "jsonl", node).text.splitlines()
    add_foreign(folder / topic)
    ran = kops("log", *command, "--format", "jsonl", str(folder))
    foreign = ran.text.splitlines()
    # Data partitions may hold anything.
    assert ran.code == (0 if command[0] == "txns" else 4)
    raw = [line for line in foreign if '"state": "raw"' in line]
    assert len(raw) == (3 if command[0] in ("offsets", "txnstate") else 0)
    assert len(foreign) - len(raw) == len(whole)
    if command[0] == "meta":
        assert ran.err.count("left out: ") == 3
    damage(folder / topic)
    ran = kops("log", *command, "--format", "jsonl", str(folder))
    assert ran.code == 4
    assert f"{topic}/00000000000000000" in ran.err and "left out: the checksum is wrong" in ran.err
    assert kept in ran.text
    assert [line for line in ran.text.splitlines() if '"state": "raw"' in line] == raw


def test_a_path_without_files_of_kafka_is_refused(kops: Kops, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    for command in ("offsets", "txnstate", "txns"):
        ran = kops("log", command, str(tmp_path))
        assert (ran.code, ran.text) == (16, ""), command
    # A log directory without partitions has no transactions.
    (tmp_path / "meta.properties").write_text("version=1\n")
    assert kops("log", "txns", str(tmp_path)).code == 0
