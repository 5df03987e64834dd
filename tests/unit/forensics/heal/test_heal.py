"""Healing logs that the tests make: what is taken from which replica, and what is not."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from kops.errors import KopsError, LockHeldError, UsageError
from kops.files import Files, MemoryFiles, OsFiles
from kops.forensics.heal import fill
from kops.forensics.heal.run import HealReport, heal
from kops.forensics.plans.journal import locked
from kops.forensics.repair.run import open_journal, repair, rollback
from kops.forensics.replicas.run import diff
from kops.forensics.verify.run import verify
from kops.records import Batch, BatchBuilder, BytesSource, scan
from tests.unit.forensics.replicas.test_diff import RIGHT, batch, flipped, replica

EPOCHS = "0\n1\n1 0\n"
NOW = 1_800_000_000_000


def healed(target: Path, *sources: Path) -> HealReport:
    return heal([target], sources, mode="all", now_ms=lambda: NOW)


def batches(log_dir: Path) -> list[bytes]:
    paths = sorted((log_dir / "orders-0").glob("*.log"))
    return [bytes(item.data()) for path in paths for item in scan(BytesSource(path.read_bytes())) if isinstance(item, Batch)]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def filled(report: HealReport) -> list[tuple[int, int, str]]:
    return [(first, last, Path(source).parent.name) for each in report.partitions for first, last, source in each.filled]


def test_each_of_two_gives_what_the_other_lacks(tmp_path: Path) -> None:
    damaged = list(RIGHT)
    for place in (2, 5, 9):
        damaged[place] = flipped(RIGHT[place])
    target = replica(tmp_path, 1, (0, damaged), epochs=EPOCHS)
    two = replica(tmp_path, 2, (0, [*RIGHT[:2], flipped(RIGHT[2]), *RIGHT[3:]]), epochs=EPOCHS)
    three = replica(tmp_path, 3, (0, RIGHT[:7]), epochs=EPOCHS)
    report = healed(target, two, three)
    assert batches(target) == RIGHT
    assert sorted(filled(report)) == [(4, 5, "broker-3"), (10, 11, "broker-2"), (18, 19, "broker-2")]
    assert not report.lossy
    assert [found.code for found in verify([target / "orders-0"], "full").findings if found.severity == "error"] == []


def test_a_replica_is_not_read_again_for_what_another_one_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, list[int]]] = []
    ask = fill._offers

    def offers(files: Files, holes: Sequence[fill._Hole], donor: fill.Donor) -> list[fill._Offer]:
        asked.append((Path(donor.directory).parent.name, [hole.low for hole in holes]))
        return ask(files, holes, donor)

    monkeypatch.setattr(fill, "_offers", offers)
    damaged = list(RIGHT)
    for place in (2, 5):
        damaged[place] = flipped(RIGHT[place])
    target = replica(tmp_path, 1, (0, damaged), epochs=EPOCHS)
    sources = [
        replica(tmp_path, 2, (0, [*RIGHT[:2], flipped(RIGHT[2]), *RIGHT[3:]]), epochs=EPOCHS),
        *(replica(tmp_path, number, (0, RIGHT), epochs=EPOCHS) for number in (3, 4)),
    ]
    healed(target, *sources)
    assert batches(target) == RIGHT
    assert asked == [("broker-2", [4, 10]), ("broker-3", [4])]


@pytest.mark.parametrize(
    ("found", "missing"),
    [
        ([RIGHT[1], RIGHT[1], *RIGHT[2:]], (0, 1)),
        ([RIGHT[2], RIGHT[2], flipped(RIGHT[1]), RIGHT[0], *RIGHT[3:]], (2, 3)),
    ],
    ids=["a copy of the second", "blocks in another order"],
)
def test_a_log_that_begins_with_another_batch_than_its_first(tmp_path: Path, found: list[bytes], missing: tuple[int, int]) -> None:
    """No leader-epoch-checkpoint says where the log begins, but the name of the segment does."""
    target, two = replica(tmp_path, 1, (0, found)), replica(tmp_path, 2, (0, RIGHT))
    report = healed(target, two)
    assert filled(report) == [(*missing, "broker-2")]
    assert batches(target) == RIGHT


def test_what_no_replica_has_is_told_closed_and_filled_later(tmp_path: Path) -> None:
    wrong = [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]
    target, two = replica(tmp_path, 1, (0, wrong), epochs=EPOCHS), replica(tmp_path, 2, (0, wrong), epochs=EPOCHS)
    report = healed(target, two)
    assert [each.lost for each in report.partitions] == [[(6, 7)]]
    assert [each for each in batches(target) if each in RIGHT] == [*RIGHT[:3], *RIGHT[4:]]
    again = healed(target, replica(tmp_path, 3, (0, RIGHT), epochs=EPOCHS))
    assert batches(target) == RIGHT
    assert not again.lossy


def test_a_plan_writes_nothing(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]), epochs=EPOCHS)
    two = replica(tmp_path, 2, (0, RIGHT), epochs=EPOCHS)
    before = contents(tmp_path)
    report = heal([target], [two])
    assert filled(report) == [(6, 7, "broker-2")]
    assert next(step.action for plan in report.repair.plans for step in plan.steps) == "rewrite-log"
    assert contents(tmp_path) == before


def test_a_diverged_history_gives_nothing_behind_the_parting(tmp_path: Path) -> None:
    """Broker 2 led from offset 14 on in epoch 2. Its batches are not those that were damaged on broker 1."""
    newer = [batch(offset, epoch=2, value=b"new") for offset in (14, 16, 18)]
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:8], flipped(RIGHT[8]), RIGHT[9]]), epochs=EPOCHS)
    two = replica(tmp_path, 2, (0, [*RIGHT[:7], *newer]), epochs="0\n2\n1 0\n2 14\n")
    report = healed(target, two)
    assert filled(report) == [(6, 7, "broker-2")]
    assert [each.lost for each in report.partitions] == [[(16, 17)]]
    assert not set(newer) & set(batches(target))


def test_a_damaged_end_of_an_older_history_is_not_continued_by_a_newer_one(tmp_path: Path) -> None:
    """No intact batch contradicts broker 2's, but the epochs of broker 1 do: according to its checkpoints, offsets up to 20 belong to epoch
    1.
    """
    newer = [batch(offset, epoch=2, value=b"new") for offset in (14, 16, 18)]
    target = replica(tmp_path, 1, (0, [*RIGHT[:7], *map(flipped, RIGHT[7:])]), epochs=EPOCHS, high=20)
    two = replica(tmp_path, 2, (0, [*RIGHT[:7], *newer]), epochs="0\n2\n1 0\n2 14\n")
    report = healed(target, two)
    assert filled(report) == []
    assert report.lossy
    assert not set(newer) & set(batches(target))


def test_a_batch_of_a_dead_history_is_not_taken(tmp_path: Path) -> None:
    """Broker 2 was the leader of epoch 1 and has two batches that nobody else got. The others continued in epoch 2."""
    newer = [batch(offset, epoch=2, value=b"new") for offset in (14, 16, 18)]
    right = [*RIGHT[:7], *newer]
    target = replica(tmp_path, 1, (0, [*right[:7], flipped(right[7]), flipped(right[8]), right[9]]), epochs="0\n2\n1 0\n2 14\n")
    two = replica(tmp_path, 2, (0, RIGHT[:9]), epochs=EPOCHS)
    report = healed(target, two)
    assert filled(report) == []
    three = replica(tmp_path, 3, (0, right), epochs="0\n2\n1 0\n2 14\n")
    assert filled(healed(target, two, three)) == [(14, 17, "broker-3")]
    assert batches(target) == right


def test_a_replica_that_is_behind_is_left_to_replication(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:2], flipped(RIGHT[2]), *RIGHT[3:6]]), epochs=EPOCHS)
    report = healed(target, replica(tmp_path, 2, (0, RIGHT), epochs=EPOCHS))
    assert filled(report) == [(4, 5, "broker-2")]
    assert batches(target) == RIGHT[:6]


def test_a_torn_tail_is_filled_to_the_end(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:6], RIGHT[6][:-10]]), epochs=EPOCHS)
    healed(target, replica(tmp_path, 2, (0, RIGHT[:8]), (16, RIGHT[8:]), epochs=EPOCHS))
    assert batches(target) == RIGHT
    assert sorted(path.name for path in (target / "orders-0").glob("*.log")) == [f"{0:020d}.log", f"{16:020d}.log"]


def test_a_log_is_not_cut_where_the_other_one_rolled(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], *map(flipped, RIGHT[3:7]), *RIGHT[7:]]), epochs=EPOCHS)
    healed(target, replica(tmp_path, 2, (0, RIGHT[:5]), (10, RIGHT[5:]), epochs=EPOCHS))
    assert batches(target) == RIGHT
    assert [path.name for path in (target / "orders-0").glob("*.log")] == [f"{0:020d}.log"]


def test_holes_of_compaction_stay(tmp_path: Path) -> None:
    compacted = [batch(0, only={1}), *RIGHT[2:5], flipped(RIGHT[5]), *RIGHT[7:]]
    target = replica(tmp_path, 1, (0, compacted), epochs=EPOCHS)
    healed(target, replica(tmp_path, 2, (0, RIGHT), epochs=EPOCHS))
    assert batches(target)[:4] == compacted[:4]
    assert RIGHT[5] in batches(target)
    assert RIGHT[1] not in batches(target)


def test_rollback(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]), epochs=EPOCHS)
    before = contents(target)
    report = healed(target, replica(tmp_path, 2, (0, RIGHT), epochs=EPOCHS))
    assert contents(target) != before
    (journal,) = report.repair.journals
    files = OsFiles()
    rollback(files, open_journal(files, journal.path))
    assert contents(target) == before


def test_a_source_that_changes_meanwhile_is_not_taken(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]), epochs=EPOCHS)
    two = replica(tmp_path, 2, (0, RIGHT), epochs=EPOCHS)
    log = two / "orders-0" / f"{0:020d}.log"

    def change(number: int, total: int, step: object) -> None:
        if number == 1:
            log.write_bytes(b"".join([*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))

    before = (target / "orders-0" / log.name).read_bytes()
    with pytest.raises(KopsError, match="changed since the plan"):
        heal([target], [two], mode="all", now_ms=lambda: NOW, on_step=change)
    assert (target / "orders-0" / log.name).read_bytes() == before
    log.write_bytes(b"".join(RIGHT))
    repair([target], mode="all", now_ms=lambda: NOW)
    assert batches(target) == RIGHT


def test_names_lead_nowhere_else(tmp_path: Path) -> None:
    """A link in place of a log is read in either directory, but only a file of the healed directory is written."""
    outside = tmp_path / "outside.log"
    outside.write_bytes(b"".join([*RIGHT[:3], flipped(RIGHT[3]), *RIGHT[4:]]))
    target = replica(tmp_path, 1, (0, []), epochs=EPOCHS)
    link = target / "orders-0" / f"{0:020d}.log"
    link.unlink()
    link.symlink_to(outside)
    (target / "orders-0" / f"{16:020d}.log").symlink_to(tmp_path / "nowhere")
    kept = outside.read_bytes()
    two = replica(tmp_path, 2, (0, RIGHT[:8]), (16, RIGHT[8:]), epochs=EPOCHS)
    healed(target, two)
    assert outside.read_bytes() == kept
    assert not (tmp_path / "nowhere").exists()
    assert {path.name for path in tmp_path.iterdir()} <= {"outside.log", "broker-1", "broker-2", "broker-1.kops-journal"}
    assert link.read_bytes() == b"".join(RIGHT)


def test_wrong_sources(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, RIGHT))
    with pytest.raises(UsageError, match="directory to heal"):
        heal([target], [target / "orders-0"])
    with pytest.raises(UsageError, match="directory to heal"):
        heal([target / "orders-0"], [tmp_path])
    other = replica(tmp_path, 2, (0, RIGHT))
    os.rename(other / "orders-0", other / "clicks-0")
    with pytest.raises(UsageError, match="has a replica"):
        heal([target], [other])


def test_not_while_a_broker_runs(tmp_path: Path) -> None:
    target = replica(tmp_path, 1, (0, [*RIGHT[:3], flipped(RIGHT[3])]))
    two = replica(tmp_path, 2, (0, RIGHT))
    with locked(OsFiles(), str(target)), pytest.raises(LockHeldError):
        healed(target, two)


def test_a_set_that_begins_before_the_hole_is_not_taken() -> None:
    """The header of a compressed v1 set has only its last offset."""

    def packed(first: int, last: int) -> bytes:
        builder = BatchBuilder(magic=1, codec="gzip", base_offset=first)
        for offset in range(first, last + 1):
            builder.append(NOW, b"k", b"v%d" % offset)
        return builder.build()

    files = MemoryFiles()
    whole = [packed(0, 1), packed(2, 5), packed(6, 8), packed(9, 12), packed(13, 14)]
    for log_dir, log in (("/1", [whole[0], packed(4, 7), whole[4]]), ("/2", whole)):
        files.mkdir(log_dir)
        files.mkdir(f"{log_dir}/orders-0")
        files.write_all(f"{log_dir}/orders-0/00000000000000000000.log", b"".join(log))
    heal(["/1"], ["/2"], files=files, mode="all", now_ms=lambda: NOW)
    logs = [files.read_all(f"/1/orders-0/{name}") for name in files.list("/1/orders-0") if name.endswith(".log")]
    found = [item for log in logs for item in scan(BytesSource(log)) if isinstance(item, Batch)]
    offsets = [record.offset for item in found for record in item.records()]
    assert len(set(offsets)) == len(offsets)
    assert {*range(2), *range(4, 8), *range(9, 15)} <= set(offsets)


def message(offset: int) -> bytes:
    builder = BatchBuilder(magic=0, base_offset=offset)
    builder.append(-1, b"key", b"value %d" % offset)
    return builder.build()


def test_batches_beside_holes_of_compaction_are_written_once(tmp_path: Path) -> None:
    """The plan has two rounds: the first one takes the batches, the second one closes the holes that v0 does not explain."""
    right = [message(offset) for offset in (0, 1, 2, 4, 5, 7)]
    target = replica(tmp_path, 1, (0, right[:3]), high=8)
    healed(target, replica(tmp_path, 2, (0, right), high=8))
    assert [each for each in batches(target) if each[16] == 0] == right
    assert [path.name for path in sorted((target / "orders-0").glob("*.log"))] == [f"{0:020d}.log"]


def test_a_log_keeps_its_name_for_another_one(tmp_path: Path) -> None:
    """The first batch of the log is only in another segment. It makes a log of its own, with the name of the first one."""
    first, second = RIGHT[1:4], RIGHT[4:]
    target = replica(tmp_path, 1, (0, [flipped(RIGHT[0]), *first]), (8, [*second[:3], RIGHT[0], *second[3:]]), epochs=EPOCHS)
    repair([target], mode="all", now_ms=lambda: NOW)
    assert set(RIGHT) <= set(batches(target))
    renamed = replica(tmp_path, 2, (0, first), (8, [*second, RIGHT[0]]), epochs=EPOCHS)
    repair([renamed], mode="all", now_ms=lambda: NOW)
    assert set(RIGHT[1:]) <= set(batches(renamed))


def test_two_replicas_show_that_a_batch_has_too_low_an_offset(tmp_path: Path) -> None:
    """In a log with gaps, nothing in the log itself contradicts the wrong offset."""
    whole = [batch(offset, only={offset}) for offset in (0, 2, 8, 12)]
    wrong = [*whole[:2], (5).to_bytes(8, "big") + whole[2][8:], whole[3]]
    target = replica(tmp_path, 1, (0, wrong), epochs=EPOCHS)
    others = [replica(tmp_path, number, (0, whole), epochs=EPOCHS) for number in (2, 3)]
    (found,) = diff([target, *others]).findings
    assert (found.code, found.file) == ("replica-damaged", str(target / "orders-0" / f"{0:020d}.log"))
    assert found.detail == "its offsets 5 to 6 contradict the other replicas; offsets 8 to 9 are intact in " + ", ".join(
        str(each / "orders-0") for each in others
    )
    report = healed(target, *others)
    assert batches(target) == whole
    assert filled(report) == [(8, 9, "broker-2")]


@pytest.mark.parametrize("offset", [5, 10])
@pytest.mark.parametrize("is_target", [False, True])
def test_one_replica_shows_only_that_one_of_two_offsets_is_wrong(offset: int, is_target: bool, tmp_path: Path) -> None:
    """Nothing tells which one, so each stays as it is. The right one was replaced by the wrong one."""
    whole = [batch(offset, only={offset}) for offset in (0, 2, 8, 12)]
    wrong = [*whole[:2], offset.to_bytes(8, "big") + whole[2][8:], whole[3]]
    target = replica(tmp_path, 1, (0, wrong if is_target else whole), epochs=EPOCHS)
    other = replica(tmp_path, 2, (0, whole if is_target else wrong), epochs=EPOCHS)
    (found,) = diff([target, other]).findings
    assert (found.code, found.base_offset, found.last_offset) == ("replica-contents-differ", min(8, offset), max(9, offset + 1))
    report = healed(target, other)
    assert batches(target) == (wrong if is_target else whole)
    assert filled(report) == []
