"""Several replicas of a partition give every record that one of them has intact: once, at its offset. They never give a record that did not
exist.
"""

from __future__ import annotations

import posixpath

import pytest

from kops.files import MemoryFiles
from kops.forensics.recover.report import RecoveredPartition
from kops.forensics.recover.run import recover
from kops.records import Batch, Record, scan
from kops.records.build import build_batch
from kops.storage.formats.leader_epoch_checkpoint import read_leader_epoch_checkpoint
from kops.storage.formats.names import log_file_name
from tests.support import corpus
from tests.support.logs.three_replicas import CLEAN, equal_gzip_sets, expand, folders, three_damaged


def records_of(files: MemoryFiles, folder: str) -> dict[int, Record]:
    """Return every record of a recovered folder. Fails on damage and on offsets or leader epochs that go back."""
    found: dict[int, Record] = {}
    last = epoch = -1
    for name in sorted(name for name in files.list(folder) if name.endswith(".log")):
        with files.open(posixpath.join(folder, name)) as log:
            for batch in scan(log):
                assert isinstance(batch, Batch), batch
                assert batch.base_offset > last
                assert batch.magic < 2 or batch.partition_leader_epoch >= epoch
                last, epoch = batch.last_offset, batch.partition_leader_epoch
                if not batch.is_control:
                    found.update((record.offset, record) for record in batch.records())
    return found


def log_bytes(files: MemoryFiles, folder: str) -> bytes:
    """Return the logs of a folder, joined."""
    return b"".join(files.read_all(posixpath.join(folder, name)) for name in sorted(files.list(folder)) if name.endswith(".log"))


def put(files: MemoryFiles, path: str, content: dict[str, bytes]) -> str:
    """Write a folder, and return its path."""
    for at in (posixpath.dirname(path), path):
        if not files.exists(at):
            files.mkdir(at)
    for name, data in content.items():
        with files.open(posixpath.join(path, name), "new") as file:
            file.write(0, data)
    return path


def merged(files: MemoryFiles, paths: list[str], out: str = "/out") -> RecoveredPartition:
    report = recover(paths, out, files=files, out_files=files)
    (entry,) = report.partitions
    assert not report.skipped
    return entry


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_two_of_three_are_whole(case_id: str) -> None:
    """The result is the clean log, byte for byte, wherever the damaged one comes in the list."""
    case = corpus.load(case_id)
    folder = posixpath.basename(case.json["damagedDir"])
    clean, bad = folders(case)
    for place in range(3):
        files = MemoryFiles()
        paths = [put(files, f"/n{number}/{folder}", bad if number == place else clean) for number in range(3)]
        entry = merged(files, paths)
        assert log_bytes(files, entry.output) == log_bytes(files, paths[place - 1]), place
        assert not entry.missing
        assert {each["file"].split("/")[1] for each in entry.damaged} <= {f"n{place}"}


@pytest.mark.parametrize("case_id", corpus.cases("damage"))
def test_all_three_are_damaged(case_id: str) -> None:
    """One has the case's own damage, the two others have flipped bits elsewhere. Some batches are damaged in both of these."""
    case = corpus.load(case_id)
    folder = posixpath.basename(case.json["damagedDir"])
    truth = {row["offset"]: row for row in case.lines(CLEAN)}
    (bad, one, two), intact = three_damaged(case)
    for place, contents in enumerate(([bad, one, two], [one, bad, two], [two, one, bad])):
        files = MemoryFiles()
        entry = merged(files, [put(files, f"/n{number}/{folder}", content) for number, content in enumerate(contents)])
        got = records_of(files, entry.output)
        for offset, record in got.items():
            assert corpus.as_truth(record) == truth[offset], (place, offset)
        assert intact <= got.keys()
        assert truth.keys() - got.keys() <= expand(entry.missing)
        assert not expand(entry.lost) & got.keys()


def batch(base: int, count: int, *, epoch: int = 0, tag: str = "v", magic: int = 2, codec: str = "none", step: int = 1) -> bytes:
    records = [
        Record(base + i, 1_700_000_000_000 + base + i, "CreateTime", b"k", f"{tag}{base + i}".encode()) for i in range(0, count, step)
    ]
    return build_batch(records, magic=magic, codec=codec, partition_leader_epoch=epoch)


def values(found: dict[int, Record]) -> dict[int, str]:
    return {offset: (record.value or b"").decode() for offset, record in found.items()}


def of(*logs: bytes) -> tuple[RecoveredPartition, dict[int, str], MemoryFiles]:
    """Recover replicas with one segment each."""
    files = MemoryFiles()
    name = log_file_name(0, "log")
    paths = [put(files, f"/n{number}/t-0", {name: data}) for number, data in enumerate(logs)]
    entry = merged(files, paths)
    return entry, values(records_of(files, entry.output)), files


def rows(tag: str, first: int, last: int) -> dict[int, str]:
    return {offset: f"{tag}{offset}" for offset in range(first, last + 1)}


def conflicts(entry: RecoveredPartition) -> list[tuple[int, int, str, int, int, str]]:
    return [(each.first, each.last, each.why, each.kept_epoch, each.other_epoch, each.copy) for each in entry.conflicts]


def test_equal_replicas_and_one_that_is_behind_are_healthy() -> None:
    log = batch(0, 5) + batch(5, 5) + batch(10, 5)
    entry, got, _ = of(batch(0, 5), log, log)
    assert got == rows("v", 0, 14)
    assert (entry.damaged, entry.notes, entry.conflicts, entry.missing) == ([], [], [], [])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_newer_history_wins_also_in_its_holes(order: tuple[int, ...]) -> None:
    """Replica 0 has offsets 6 to 29 of epoch 1. An unclean election began epoch 2 at offset 6. Replica 1 has epoch 2, with a hole."""
    old = batch(0, 3, epoch=1) + b"".join(batch(base, 3, epoch=1, tag="old") for base in range(3, 30, 3))
    third = batch(9, 3, epoch=2, tag="new")
    bad = third[:-1] + bytes([third[-1] ^ 1])
    new = batch(0, 3, epoch=1) + batch(3, 3, epoch=1, tag="old") + batch(6, 3, epoch=2, tag="new") + bad + batch(12, 3, epoch=2, tag="new")
    logs = [old, new]
    entry, got, files = of(*(logs[number] for number in order))
    assert got == rows("v", 0, 2) | rows("old", 3, 5) | rows("new", 6, 8) | rows("new", 12, 14) | rows("old", 15, 29)
    assert entry.lost == [(9, 11)]
    copy = f"/n{order.index(0)}/t-0"
    assert conflicts(entry) == [(6, 14, "older-epoch", 2, 1, copy), (15, 29, "behind-the-end", 2, 1, copy)]
    epochs = read_leader_epoch_checkpoint(files.read_all("/out/t-0/leader-epoch-checkpoint"))
    assert [(each.epoch, each.start_offset) for each in epochs] == [(1, 0), (2, 6)]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("magic", "codec"), [(2, "none"), (2, "zstd")])
def test_of_a_batch_that_is_overlapped_in_part_the_rest_is_kept(order: tuple[int, ...], magic: int, codec: str) -> None:
    old = batch(0, 10, epoch=1, tag="old", codec=codec) + batch(10, 10, epoch=1, tag="old", codec=codec)
    new = batch(5, 4, epoch=3, tag="new", codec=codec)
    entry, got, _ = of(*([old, new][number] for number in order))
    assert got == rows("old", 0, 4) | rows("new", 5, 8) | rows("old", 9, 19)
    assert {each.why for each in entry.conflicts} == {"older-epoch", "behind-the-end"}
    assert not entry.missing


def test_replicas_that_were_cleaned_differently_give_all_records() -> None:
    """One cleaner kept the even offsets of a batch, the other one every third."""
    one = batch(0, 12, step=2) + batch(12, 3)
    two = batch(0, 12, step=3) + batch(12, 3)
    entry, got, _ = of(one, two, one)
    assert got == {offset: f"v{offset}" for offset in range(12) if offset % 2 == 0 or offset % 3 == 0} | rows("v", 12, 14)
    assert not entry.conflicts
    whole = batch(0, 12) + batch(12, 3)
    entry, got, _ = of(one, whole, one)
    assert (got, entry.conflicts) == (rows("v", 0, 14), [])


def test_the_majority_decides_about_equal_epochs() -> None:
    right, wrong = batch(0, 3) + batch(3, 3), batch(0, 3) + batch(3, 3, tag="w")
    for logs in ([wrong, right, right], [right, wrong, right], [right, right, wrong]):
        entry, got, _ = of(*logs)
        assert got == rows("v", 0, 5)
        assert conflicts(entry) == [(3, 5, "contents", 0, 0, f"/n{logs.index(wrong)}/t-0")]


def test_a_damaged_leader_epoch_is_outvoted() -> None:
    last = batch(3, 3, epoch=1)
    wrong = last[:12] + (1000).to_bytes(4, "big") + last[16:]
    right = batch(0, 3, epoch=1) + last + batch(6, 3, epoch=1)
    _, got, files = of(batch(0, 3, epoch=1) + wrong, right, right)
    assert got == rows("v", 0, 8)
    assert log_bytes(files, "/out/t-0") == right


def test_a_batch_at_a_wrong_offset_is_known_by_its_checksum() -> None:
    """The base offset of the last batch of a replica is damaged. Without the other replica it would count as a batch after a gap."""
    last = batch(6, 3)
    moved = (500).to_bytes(8, "big") + last[8:]
    right = batch(0, 3) + batch(3, 3) + last
    for logs in ([batch(0, 3) + batch(3, 3) + moved, right], [right, batch(0, 3) + batch(3, 3) + moved]):
        entry, got, _ = of(*logs)
        assert got == rows("v", 0, 8)
        assert any("left out" in note for note in entry.notes)


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats(magic: int, codec: str) -> None:
    good = [batch(base, 4, magic=magic, codec=codec, epoch=-1) for base in (0, 4, 8)]
    holes = [good[0] + good[2], good[1] + good[2], good[0] + good[1]]
    entry, got, files = of(*holes)
    assert got == rows("v", 0, 11)
    assert log_bytes(files, "/out/t-0") == b"".join(good)
    assert not entry.missing


def test_different_gzip_sets_with_the_same_checksum_are_not_the_same() -> None:
    sets = equal_gzip_sets(0)
    files = MemoryFiles()
    paths = [put(files, f"/n{number}/t-0", {log_file_name(0, "log"): sets[number == 0]}) for number in range(3)]
    entry = merged(files, paths)
    assert log_bytes(files, entry.output) == sets[0]
    assert conflicts(entry) == [(0, 0, "contents", -1, -1, "/n0/t-0")]
