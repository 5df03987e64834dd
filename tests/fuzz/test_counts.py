"""Random damage of logs whose records are all known. Everything that is reported as lost is lost, and everything that is reported as intact
is intact.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

import pytest

from kops.files import Files, MemoryFiles
from kops.forensics.carve.run import carve
from kops.forensics.findings.finding import Finding
from kops.forensics.heal.run import heal
from kops.forensics.plans.plan import PlannedFiles
from kops.forensics.recover.run import recover
from kops.forensics.replicas.run import diff
from kops.forensics.verify.run import verify
from kops.records import Batch, scan
from tests.support.logs.known_logs import FOLDER, DamagedLog, KnownLog, Row, damaged_log, known_log, write

EACH_LOG = 10
"""The number of damages of each log."""
FAST, SLOW = 10, 60
"""The number of logs in the fast tests, and in all tests."""
LEAST_RECORD = 8
"""A record of a compressed set hardly ever takes fewer bytes, so a header that claims more offsets for its bytes is not believed."""
FOUND = (
    *((847, 9), (900, 6), (969, 2), (1002, 2), (1044, 5), (1066, 5), (1120, 2)),
    *((1188, 1), (1210, 9), (1265, 0), (1293, 6), (1246, 6), (1295, 6), (1342, 5), (1469, 3)),
    *((1600, 1), (1666, 4), (1690, 3), (1739, 0), (1747, 2), (1778, 5), (1865, 0), (1909, 7)),
    *((2362, 1), (2392, 5), (2395, 5), (2434, 9), (2490, 1), (2540, 5), (2735, 7), (3032, 1), (3413, 7), (3445, 6)),
    *((4565, 3), (4639, 1), (4641, 1), (4694, 3), (4778, 6), (5065, 2), (5211, 9), (5520, 8), (5736, 4), (5805, 3), (5915, 0)),
    *((6052, 4), (6072, 5), (6211, 9), (6569, 9), (6600, 6), (6636, 8), (6637, 0), (6702, 3), (6965, 5)),
    *((10041, 1), (10145, 4), (10498, 9), (10555, 2), (11342, 3), (11350, 1), (15004, 7), (15163, 4), (15211, 3), (16550, 1)),
    *((20202, 1), (20242, 8), (20343, 7), (20650, 4), (21190, 3), (21467, 4), (21976, 2), (22263, 6), (22675, 4)),
    *((22767, 1), (23308, 6), (23324, 4), (23349, 9), (23523, 2), (23546, 8), (23644, 5), (24104, 9), (24312, 8)),
    *((24382, 4), (24522, 8), (24753, 8), (24988, 3), (25438, 3), (25691, 6), (26271, 7), (27216, 2), (27449, 0)),
    *((27680, 9), (27703, 0), (27717, 1), (27789, 0), (27790, 6), (28787, 5), (28832, 5), (29277, 1)),
    *((26898, 9), (27569, 0), (28057, 5), (28118, 9), (29631, 9), (30161, 8), (30314, 9), (43226, 5), (44281, 8), (44627, 1), (46616, 3)),
    *((41456, 8), (47480, 7), (48715, 0), (51414, 3), (52377, 0), (52377, 2), (53948, 6), (56025, 8), (56122, 7), (56619, 5)),
    *((57086, 4), (57352, 1), (57426, 9)),
)
"""(log, number) of damages that revealed a defect in kops or in the generator."""
UNREADABLE = {"batch-crc-mismatch", "batch-length-invalid", "batch-magic-invalid", "unreadable-bytes", "zeroed-range", "torn-tail"}
UNREADABLE |= {"garbage-tail", "zero-tail", "batch-undecodable"}


def batches(files: Files, folder: str) -> list[Batch]:
    """Return the batches of the live logs in a directory, by segment."""
    found: list[Batch] = []
    for name in sorted(files.list(folder)):
        if name.endswith(".log"):
            with files.open(posixpath.join(folder, name)) as log:
                found += [item for item in scan(log) if isinstance(item, Batch)]
    return found


def rows(found: Iterable[Batch]) -> dict[int, Row]:
    """Return the key and value of each record by offset. An offset must not occur twice."""
    all_rows = [(record.offset, (record.key, record.value)) for batch in found for record in batch.records()]
    assert len(dict(all_rows)) == len(all_rows)
    return dict(all_rows)


def offsets(ranges: Iterable[tuple[int, int]]) -> set[int]:
    return {offset for first, last in ranges for offset in range(first, min(last, first + 10_000) + 1)}


def check_recover(damaged: DamagedLog, checkpoints: bool) -> None:
    """Check that `recover` writes every intact record at its offset and no other one, and that it reports every lost one."""
    files, out = MemoryFiles(), MemoryFiles()
    damaged.write(files, "/data", checkpoints=checkpoints)
    report = recover(["/data"], "/out", files=files, out_files=out)
    if not report.partitions:
        assert not damaged.intact
        return
    (entry,) = report.partitions
    written = batches(out, entry.output)
    got = rows(written)
    wanted = {offset: row for batch in damaged.intact for offset, row in batch.rows.items()}
    original = damaged.log.rows
    told = offsets(entry.missing)
    noted = _noted(entry.notes)
    lacking = {offset for offset in wanted if got.get(offset) != wanted[offset]}
    last = max(got, default=-1)
    if any(name.startswith("swap") for name in damaged.damages) and (damaged.log.compacted or damaged.dead):
        # It is unknown how far after the last batch the next one may be. A note names a batch that is too far away.
        lacking -= told | {offset for offset in noted & damaged.disordered if offset > last}
    assert lacking <= damaged.hidden | _contradicted(damaged)
    elsewhere = {offset for offset, row in got.items() if original.get(offset) != row}
    assert elsewhere <= _may_be_misplaced(damaged)
    assert (entry.batches, entry.records) == (len(written), sum(len(batch.records()) for batch in written if not batch.is_control))
    assert told & got.keys() == set()
    # The offset after the last batch stands for the records of a batch of which only the beginning is left.
    ends = [batch.last_offset for batch in written if batch.last_offset in _may_be_misplaced(damaged)]
    low = max(last, damaged.log.segments[0][0] - 1)
    ends += [claim for claim, size in damaged.claims if claim - low <= size // LEAST_RECORD]
    end = max([damaged.log.end, *ends])
    assert all(damaged.log.segments[0][0] <= offset <= end + 1 for offset in told)
    left_out = {at for batch in damaged.intact if got.keys().isdisjoint(batch.rows) for at in range(batch.base, batch.last + 1)}
    assert told & damaged.kept <= damaged.hidden | left_out | _contradicted(damaged)
    untold = {offset for offset in original if offset not in got and offset not in told}
    assert untold <= _without_a_trace(damaged, got, checkpoints) | _told_by_notes(damaged, noted)


def _noted(notes: Iterable[str]) -> set[int]:
    """Return the offsets of the batches that notes name as left out: those in the batch, be they right or wrong."""
    found = [re.search(r": offsets (-?\d+) to (-?\d+): ", note) for note in notes]
    return offsets((int(each[1]), int(each[2])) for each in found if each is not None)


def _told_by_notes(damaged: DamagedLog, noted: set[int]) -> set[int]:
    """Return the offsets of the intact batches that a note names, and in a compacted log, where a gap says nothing, those of the batches
    with a wrong offset that a note names by it."""
    moved = [each.batch for each in damaged.moved if damaged.log.compacted and each.batch.base + each.shift in noted]
    return noted & damaged.kept | {offset for batch in moved for offset in batch.rows}


def _may_be_misplaced(damaged: DamagedLog) -> set[int]:
    """Return the offsets at which a batch from elsewhere may appear, because no other batch covers its offset and nothing contradicts the
    wrong one.
    """
    found = {offset + moved.shift for moved in damaged.moved for offset in range(moved.batch.base, moved.batch.last + 1)}
    if damaged.log.compacted and damaged.log.batches[0].magic < 2 and any(name.startswith("swap") for name in damaged.damages):
        # Nothing distinguishes a gap that the cleaner left from one that a wrong offset causes.
        found |= {offset + step for offset in damaged.kept for step in range(-8, 9)}
    for moved in damaged.moved:
        claimed = (moved.batch.base + moved.shift, moved.batch.last + moved.shift)
        same = [batch for batch in damaged.intact if (batch.base, batch.last) == claimed]
        if same:  # Nothing shows which of the two is wrong.
            found |= {offset for batch in (moved.batch, *same) for offset in range(batch.base, batch.last + 1)}
    copies = {offset + copy.shift for copy in damaged.copies for offset in range(copy.batch.base, copy.batch.last + 1)}
    return (
        found
        | (copies | damaged.fitting | damaged.closing) - damaged.kept
        | {Batch(each).base_offset for each in [*damaged.inside, *damaged.unproved]}
    )


def _contradicted(damaged: DamagedLog) -> set[int]:
    """Return the offsets of intact batches that overlap a batch with a wrong offset, so that one of the two is left out, or whose own
    offsets may be wrong as far as the log tells.
    """
    wrong = _may_be_misplaced(damaged)
    spans = [range(batch.base, batch.last + 1) for batch in damaged.intact]
    return damaged.undecided | {offset for span in spans if not wrong.isdisjoint(span) for offset in span}


def _without_a_trace(damaged: DamagedLog, got: dict[int, Row], checkpoints: bool) -> set[int]:
    """Return the offsets whose lost records leave no trace: those beyond the segments, those in the gaps of a compacted log, and those of a
    batch whose wrong offset contradicts nothing.
    """
    found: set[int] = set()
    present = {base for base, _ in damaged.segments}
    last = max(got, default=-1)
    is_modern = damaged.log.batches[0].magic == 2
    for base, known in damaged.log.segments:
        every = {offset for batch in known for offset in batch.rows}
        if base < min(present) and not (checkpoints and is_modern):
            found |= every
        if base not in present and (damaged.log.compacted or (not checkpoints and base > max(present))):
            found |= every
        if not checkpoints and base == max(present):
            found |= {offset for offset in every if offset > last}
    if damaged.log.compacted:
        found |= _cut_between_batches(damaged)
    if damaged.log.compacted and any(name.startswith(("swap", "repeat")) for name in damaged.damages):
        found |= damaged.lost | damaged.hidden  # their gap looks like one of compaction
    for moved in [*damaged.moved, *damaged.copies]:
        if all(got.get(offset + moved.shift) == row for offset, row in moved.batch.rows.items()):
            found |= moved.batch.rows.keys()
            # The batches whose offsets it took, or that are between in a log that is compacted or looks so because of the gap, were not
            # there as far as the log tells.
            low, high = sorted((moved.batch.base, moved.batch.base + moved.shift))
            taken = range(low, high + moved.batch.last - moved.batch.base + 1)
            is_gap = damaged.log.compacted or moved.data in damaged.adjacent
            over = [batch for batch in damaged.dead if is_gap and batch.base in taken]
            found |= {offset for batch in over for offset in batch.rows}
    return found


def _cut_between_batches(damaged: DamagedLog) -> set[int]:
    """Return the lost offsets where whole batches follow one another, as in a compacted log."""
    spans = [batch for base, known in damaged.log.segments if base in damaged.seamless for batch in known]
    return damaged.lost & (damaged.between | {offset for batch in spans for offset in range(batch.base, batch.last + 1)})


def check_verify(damaged: DamagedLog) -> None:
    """Check the number of batches that `verify` counts."""
    files = MemoryFiles()
    damaged.write(files, "/data", checkpoints=False)
    report = verify(["/data"], "deep", files=files)
    # If a batch occurs several times, the copies whose offsets go back may count as damage. A compressed set of v0 or v1 may contain
    # messages in plain form. Those of a damaged set may be found.
    messages = sum(len(batch.rows) for batch in damaged.log.batches if batch.magic < 2)
    least = len(set(damaged.stood)) - len(damaged.hidden) - len(damaged.moved)
    if damaged.dead:
        # Before damage, a batch whose offsets go back may be from the value of a record.
        least -= sum(batch.base in damaged.disordered for batch in damaged.intact)
    most = damaged.places + len(damaged.inside) + len(damaged.unproved) + messages
    assert least <= report.batches <= most
    _check_positions(damaged, report.findings)


def _check_positions(damaged: DamagedLog, findings: Iterable[Finding]) -> None:
    """Check that findings cover all bytes that are not of whole batches, and that none of unreadable bytes is in a whole batch."""
    spans: dict[int, list[tuple[int, int, str]]] = {}
    for found in findings:
        if found.file.endswith(".log") and found.is_problem and found.position is not None and found.length is not None:
            place = (found.position, found.position + found.length, found.code)
            spans.setdefault(int(posixpath.basename(found.file)[:20]), []).append(place)
    for base, data in damaged.segments:
        here, end = spans.get(base, []), 0
        for start, stop, batch in [*damaged.whole[base], (len(data), len(data), None)]:
            if start > end and not any(low <= end and start <= high for low, high in damaged.overlapping[base]):
                assert any(low < start and end < high for low, high, _ in here), (base, end, start)
            end = stop
            if batch is not None and (damaged.hidden | damaged.restamped).isdisjoint(range(batch.base, batch.last + 1)):
                assert not any(low < stop and start < high for low, high, code in here if code in UNREADABLE), (base, start, stop)


def _beside(damaged: DamagedLog, checkpoints: bool) -> MemoryFiles:
    """Return files with the log before the damage in /a and after it in /b."""
    files = MemoryFiles()
    write(files, "/a", damaged.log.contents(), damaged.log, checkpoints=True)
    damaged.write(files, "/b", checkpoints=checkpoints)
    return files


def _is_clear(damaged: DamagedLog) -> bool:
    """Return whether a comparison of two replicas can identify each offset. It can if no batch has a wrong offset, comes from a value, or
    was swapped in a compacted log, and if the headers have the offsets.
    """
    swapped = any(name.startswith("swap") for name in damaged.damages)
    modern = damaged.log.batches[0].magic == 2
    return modern and not (damaged.inside or damaged.moved or damaged.copies or (damaged.log.compacted and swapped))


def check_diff(damaged: DamagedLog, checkpoints: bool) -> None:
    """Check that the damaged replica lacks what is lost and that the other one lacks nothing."""
    (found,) = diff(["/a", "/b"], files=_beside(damaged, checkpoints)).partitions
    whole, broken = found.replicas
    assert whole.gone == []
    if not _is_clear(damaged):
        return
    assert whole.missing == []
    missing = offsets(broken.missing)
    assert missing & damaged.kept <= damaged.hidden | damaged.disordered
    begin = damaged.segments[0][0] if broken.start_offset is None else broken.start_offset
    # A segment of a compacted log may have become empty.
    untold = {offset for offset in damaged.lost if offset >= begin} - missing
    gone = damaged.log.offsets - _present(damaged) | _cut_between_batches(damaged)
    assert untold <= (gone if damaged.log.compacted else set())
    assert damaged.log.compacted or found.lost == []


def check_heal(damaged: DamagedLog, checkpoints: bool) -> None:
    """Check that `heal` restores what is lost from the other replica and changes nothing else."""
    files = _beside(damaged, checkpoints)
    report = heal(["/b"], ["/a"], files=files)
    planned = PlannedFiles(files, [step for plan in report.repair.plans for step in plan.steps])
    got = rows(batches(planned, f"/b/{FOLDER}"))
    original = damaged.log.rows
    assert {offset for offset, row in got.items() if original.get(offset) != row} <= _may_be_misplaced(damaged)
    if not _is_clear(damaged):
        return
    filled = {offset for each in report.partitions for first, last, _ in each.filled for offset in range(first, last + 1)}
    assert filled & damaged.kept <= damaged.hidden | damaged.disordered | damaged.restamped
    # A wrong leader epoch of the last batch makes the others' batches look like an older history.
    assert damaged.log.compacted or damaged.restamped or not report.lossy
    lacking = original.keys() - got.keys()
    swapped = any(name.startswith("swap") for name in damaged.damages)
    begin = min(got, default=damaged.segments[0][0]) if swapped else damaged.segments[0][0]
    gone = damaged.log.offsets - _present(damaged) | _cut_between_batches(damaged) if damaged.log.compacted else set()
    if damaged.log.compacted and any(name.startswith("repeat") for name in damaged.damages):
        gone |= damaged.hidden  # A later batch is before it, so its gap looks like one of compaction.
    # Retention may have deleted what is before the first segment, and replication copies what is after the last batch.
    assert all(offset < begin or offset > max(got, default=-1) or offset in gone for offset in lacking)


def _present(damaged: DamagedLog) -> set[int]:
    """Return the offsets in the segments that exist."""
    bases = {base for base, _ in damaged.segments}
    return {offset for base, known in damaged.log.segments if base in bases for batch in known for offset in batch.rows}


def check_carve(damaged: DamagedLog) -> None:
    """Check that `carve` finds every intact batch and no other."""
    files, out = MemoryFiles(), MemoryFiles()
    files.write_all("/image", b"".join(b"\xa5" * 700 + data for _, data in damaged.segments))
    report = carve(["/image"], "/out", files=files, out_files=out)
    carved = [bytes(batch.data()) for log in report.logs for batch in batches(out, log.output)]
    assert len(carved) == report.batches
    known = {*damaged.stood, *damaged.inside, *damaged.unproved, *(moved.data for moved in damaged.moved)}
    if damaged.log.batches[0].magic == 2:
        assert set(carved) <= known
    # If two copies differ in the leader epoch, which no checksum covers, one of them is left out. So may be a copy under another offset.
    assert {(batch.data[:8], batch.data[16:]) for batch in damaged.intact} <= {(each[:8], each[16:]) for each in carved}


def run(log: KnownLog, seed: int, number: int) -> None:
    damaged = damaged_log(log, seed, number)
    checkpoints = number % 2 == 0
    try:
        check_recover(damaged, checkpoints)
        check_verify(damaged)
        check_diff(damaged, checkpoints)
        check_heal(damaged, checkpoints)
        check_carve(damaged)
    except AssertionError as error:
        error.add_note(f"log {seed}, damage {number}: {', '.join(damaged.damages)}")
        raise


def through(first: int, last: int) -> None:
    for seed in range(first, last):
        log = known_log(seed)
        for number in range(EACH_LOG):
            run(log, seed, number)


@pytest.mark.parametrize(("seed", "number"), FOUND)
def test_damage_that_found_a_defect(seed: int, number: int) -> None:
    run(known_log(seed), seed, number)


def test_some_random_damage() -> None:
    through(0, FAST)


@pytest.mark.slow
def test_much_random_damage(seed_count: int | None) -> None:
    """`--seeds N` checks N damages, including those of the fast test."""
    through(FAST, SLOW if seed_count is None else max(FAST + 1, seed_count // EACH_LOG))
