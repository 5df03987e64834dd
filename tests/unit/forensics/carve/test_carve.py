"""Carving finds every intact batch of an image and invents none. The carved logs can be verified."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kops.errors import NotFoundError, UsageError
from kops.files import OsFiles
from kops.forensics.carve.fragments import Fragment
from kops.forensics.carve.grouping import group
from kops.forensics.carve.run import FRAGMENTS_FILE, CarveReport, carve
from kops.forensics.verify.run import verify
from tests.support.images import DiskImage, batches_below, shuffled_image, some_log
from tests.support.logs.three_replicas import equal_gzip_sets

if TYPE_CHECKING:
    from kops.files.api import StrPath


def fragments_of(report: CarveReport) -> list[dict[str, Any]]:
    """Return the list of fragments that a run wrote."""
    return [json.loads(line) for line in (Path(report.out) / FRAGMENTS_FILE).read_text().splitlines()]


def carved(report: CarveReport) -> Counter[bytes]:
    """Return how often each batch is in the output."""
    return Counter(batches_below(Path(log.output) for log in report.logs))


def check(report: CarveReport, image: DiskImage) -> None:
    """Check that the output has every intact batch once and nothing else, and that the provenance is right."""
    assert carved(report) == Counter(set(image.batches.values()))
    for row in fragments_of(report):
        assert row["position"] in image.batches
        assert row["batches"] == sum(row["position"] <= at < row["position"] + row["length"] for at in image.batches)


@pytest.mark.parametrize("seed", range(6))
def test_logs_in_random_order_between_foreign_data(seed: int, tmp_path: Path) -> None:
    logs = [
        some_log(0, 40, producer=7),
        some_log(120, 30, producer=7, sequence=120),
        some_log(0, 25, producer=8, epoch=3),
        some_log(500, 20, magic=1),
        some_log(0, 30, magic=0),
        some_log(900, 3, producer=9, value=random.Random(seed).randbytes(9000)),
    ]
    image = shuffled_image(seed, logs)
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    codes = {each.code for each in verify([report.out], "full").findings if each.severity == "error"}
    assert codes <= {"offset-gap", "segment-gap", "sequence-gap", "log-start-missing"}, codes


def test_a_batch_at_every_place_of_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kops.forensics.carve.fragments.WINDOW", 1 << 10)
    for shift in range(0, 1100, 53):
        image = DiskImage(shift)
        image.data += b"\xaa" * shift
        image.piece(some_log(5, 12, producer=1) + some_log(41, 4, magic=2, value=bytes(3000)))
        image.piece(some_log(9, 4, magic=1) + some_log(30, 4, magic=0))
        report = carve([image.write(tmp_path / f"image-{shift}")], tmp_path / f"out-{shift}")
        check(report, image)


def test_producers_tell_logs_apart_that_offsets_do_not(tmp_path: Path) -> None:
    """Two partitions roll at the same offset. Their later parts come in the opposite order."""
    image = DiskImage(1)
    for log in (
        some_log(0, 10, producer=1),
        some_log(0, 10, producer=2),
        some_log(30, 10, producer=2, sequence=30),
        some_log(30, 10, producer=1, sequence=30),
    ):
        image.foreign(3000)
        image.piece(log)
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert [(log.first_offset, log.last_offset, log.gaps) for log in report.logs] == [(0, 59, []), (0, 59, [])]
    assert {row["joined_by"] for row in fragments_of(report)} == {"first", "sequences"}
    assert verify([report.out], "full").findings == []


def test_what_nothing_decides_stays_apart(tmp_path: Path) -> None:
    image = DiskImage(2)
    for log in (some_log(0, 10), some_log(0, 10, value=b"other"), some_log(30, 10), some_log(30, 10, value=b"other")):
        image.foreign(3000)
        image.piece(log)
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert len(report.logs) == 4


def test_interleaved_blocks_of_two_files(tmp_path: Path) -> None:
    """A file system that alternates between two files cuts batches. All others are found, in two logs."""
    one, two = some_log(0, 60, producer=1), some_log(0, 54, producer=2, value=b"of the other file" * 3)
    blocks = [log[at : at + 2048] for at in range(0, max(len(one), len(two)), 2048) for log in (one, two)]
    image = DiskImage(3)
    image.data += b"".join(blocks)
    for log in (one, two):
        position = 0
        while position < len(log):
            size = int.from_bytes(log[position + 8 : position + 12], "big") + 12
            batch = log[position : position + size]
            at = bytes(image.data).find(batch)
            if at >= 0:
                image.batches[at] = batch
            position += size
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert len(report.logs) == 2
    assert [len({row["log"] for row in fragments_of(report)})] == [2]
    assert all(log.gaps for log in report.logs)


def test_a_segment_in_a_value_is_counted_only(tmp_path: Path) -> None:
    inner = some_log(0, 5, producer=4) + some_log(77, 2, magic=1)
    image = DiskImage(4)
    image.foreign(500)
    image.piece(some_log(100, 3, value=inner))
    image.piece(some_log(200, 3, magic=1, value=inner))
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert report.nested == (9 + 9) * 5


def test_a_segment_in_the_value_of_a_damaged_batch_is_kept_apart(tmp_path: Path) -> None:
    inner = some_log(3, 1, producer=4) + some_log(6, 4, producer=4, sequence=3)
    image = DiskImage(5)
    image.piece(some_log(0, 1))
    damaged = image.piece(some_log(3, 1, value=inner))
    image.piece(some_log(6, 4))
    image.overwrite(damaged + 62, b"\xff")
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    noted = [log for log in report.logs if log.notes]
    assert noted and all("inside a damaged one" in log.notes[0] for log in noted)
    rest = Counter(batches_below(Path(log.output) for log in report.logs if not log.notes))
    assert rest == Counter(image.batches.values())


def test_adjacent_segments_are_not_written_as_one_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kops.forensics.carve.run.LARGEST_RUN", 4000)
    monkeypatch.setattr("kops.forensics.recover.write._MAX_SIZE", 7000)
    image = DiskImage(6)
    for base in range(0, 200, 50):
        image.piece(some_log(3 * base, 50, producer=1, sequence=3 * base))
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert report.fragments == 1 and report.logs[0].gaps == []
    sizes = [path.stat().st_size for path in (tmp_path / "out" / "carved-0").glob("*.log")]
    assert len(sizes) > 5 and max(sizes) <= 7000
    assert verify([report.out], "full").findings == []


def test_copies_are_there_once(tmp_path: Path) -> None:
    """The image has a replica, a part of one, and one that goes further."""
    log = some_log(0, 20, producer=1)
    size = len(log) // 20
    image = DiskImage(6)
    for piece in (log[: 12 * size], log[3 * size : 9 * size], log[5 * size :], log[: 12 * size]):
        image.foreign(2000)
        image.piece(piece)
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert [(log.first_offset, log.last_offset) for log in report.logs] == [(0, 59)]
    assert report.copies == 2


def test_different_gzip_sets_with_equal_checksums_are_no_copies(tmp_path: Path) -> None:
    image = DiskImage(7)
    sets = equal_gzip_sets(4)
    assert len({each[12:16] for each in sets}) == 1
    for each in (*sets, sets[0]):
        image.foreign(3000)
        image.piece(each)
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    check(report, image)
    assert (len(report.logs), report.copies) == (2, 1)


def test_the_hint_joins_across_holes_and_names(tmp_path: Path) -> None:
    image = DiskImage(7)
    for log in (some_log(300, 5), some_log(0, 5), some_log(60, 5), some_log(60, 5, value=b"of another one")):
        image.foreign(1000)
        image.piece(log)
    path = image.write(tmp_path / "image")
    report = carve([path], tmp_path / "apart")
    assert len(report.logs) == 4
    report = carve([path], tmp_path / "out", topic_hint="orders.eu-3")
    check(report, image)
    assert report.logs[0].name == "orders.eu-3"
    assert {log.name for log in report.logs[1:]} <= {"carved-0", "carved-1", "carved-2"}
    assert (report.logs[0].first_offset, report.logs[0].last_offset, report.logs[0].gaps) == (0, 314, [(15, 59), (75, 299)])
    assert [(log.first_offset, log.last_offset) for log in report.logs[1:]] == [(60, 74)]


def test_a_directory_of_the_hints_name_is_never_replaced(tmp_path: Path) -> None:
    image = DiskImage(7)
    image.piece(some_log(0, 5))
    path = image.write(tmp_path / "image")
    kept = tmp_path / "out" / "orders-0" / "kept"
    kept.parent.mkdir(parents=True)
    kept.touch()
    with pytest.raises(UsageError, match=r"orders-0.*is not replaced"):
        carve([path], tmp_path / "out", topic_hint="orders-0", force=True)
    assert [each for each in (tmp_path / "out").rglob("*") if each.is_file()] == [kept]
    check(carve([path], tmp_path / "out", topic_hint="orders-1", force=True), image)
    assert kept.exists()


def test_offsets_beyond_48_bits_are_found_on_demand(tmp_path: Path) -> None:
    logs = [some_log(base, 30, producer=7) for base in (1 << 48, 1 << 55, (1 << 63) - 91, 0)] + [some_log(40, 9, magic=1)]
    image = shuffled_image(3, logs)
    path = image.write(tmp_path / "image")
    few = carve([path], tmp_path / "few")
    assert max(log.last_offset or 0 for log in few.logs) < 1 << 48
    report = carve([path], tmp_path / "out", large_offsets=True)
    check(report, image)
    with pytest.raises(UsageError, match="same images and options"):
        carve([path], tmp_path / "out", resume=True)
    check(carve([path], tmp_path / "out", large_offsets=True, resume=True), image)
    without_old = carve([path], tmp_path / "new", large_offsets=True, min_magic=2)
    assert without_old.batches == sum(batch[16] == 2 for batch in set(image.batches.values()))


@pytest.mark.parametrize("hint", ["../../etc-0", "/etc-0", "a/b-0", "orders", "orders-x", ".-0", "orders-0.abc-delete", ""])
def test_a_hint_never_leads_outside(hint: str, tmp_path: Path) -> None:
    image = DiskImage(8)
    image.piece(some_log(0, 2))
    with pytest.raises(UsageError, match="topic-hint"):
        carve([image.write(tmp_path / "image")], tmp_path / "out", topic_hint=hint)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["image"]


def test_a_changed_state_never_leads_outside(tmp_path: Path) -> None:
    """A new run removes what an earlier run wrote, but nothing else."""
    image = DiskImage(13)
    image.piece(some_log(0, 4))
    path = image.write(tmp_path / "image")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "kept").touch()
    report = carve([path], tmp_path / "out")
    state = tmp_path / "out" / "kops-carve.json"
    good = state.read_text()
    for name in ("../other", str(tmp_path / "other"), "..", "other", "../other-0"):
        state.write_text(json.dumps({**json.loads(good), "logs": [name]}))
        with pytest.raises(UsageError, match="not the state of an earlier run"):
            carve([path], tmp_path / "out", resume=True)
    state.write_text(good)
    written = Path(report.logs[0].output)
    written.rename(tmp_path / "moved")
    written.symlink_to(tmp_path / "other")
    carve([path], tmp_path / "out", resume=True)
    assert (tmp_path / "other" / "kept").exists()
    assert written.is_dir() and not written.is_symlink()


def test_nothing_there(tmp_path: Path) -> None:
    image = DiskImage(9)
    for _ in range(20):
        image.foreign(20_000)
    (tmp_path / "empty").touch()
    report = carve([image.write(tmp_path / "image"), tmp_path / "empty"], tmp_path / "out")
    assert (report.logs, report.batches, report.bytes) == ([], 0, len(image.data))


def test_what_cannot_be_done(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        carve([tmp_path / "none"], tmp_path / "out")
    with pytest.raises(UsageError, match="is a directory"):
        carve([tmp_path], tmp_path / "out")
    image = DiskImage(10)
    path = image.write(tmp_path / "image")
    with pytest.raises(UsageError, match="is not empty"):
        carve([path], Path(__file__).parent)
    with pytest.raises(UsageError, match="nothing to resume"):
        carve([path], tmp_path / "out", resume=True)


@pytest.mark.parametrize("windows", [1, 3, 7])
def test_an_interruption_leaves_whole_results_and_can_be_resumed(windows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kops.forensics.carve.fragments.WINDOW", 8 << 10)
    monkeypatch.setattr("kops.forensics.carve.run.CHECKPOINT_BYTES", 16 << 10)
    image = DiskImage(11)
    for log in (some_log(0, 90, producer=1), some_log(270, 90, producer=1, sequence=270), some_log(0, 50, producer=2)):
        image.foreign(2000)
        image.piece(log)
    path = image.write(tmp_path / "image")
    seen = 0

    def interrupt(_size: int) -> None:
        nonlocal seen
        seen += 1
        if seen == windows:
            raise KeyboardInterrupt

    report = carve([path], tmp_path / "out", on_bytes=interrupt)
    assert report.interrupted
    read = report.bytes
    whole = {at: batch for at, batch in image.batches.items() if at + len(batch) <= read}
    assert carved(report) >= Counter(whole.values())
    assert set(carved(report)) <= set(image.batches.values())
    with pytest.raises(UsageError, match="is not empty"):
        carve([path], tmp_path / "out")
    with pytest.raises(UsageError, match="resume it with the same"):
        carve([path], tmp_path / "out", resume=True, min_magic=2)
    again = carve([path], tmp_path / "out", resume=True)
    check(again, image)
    assert [(log.first_offset, log.last_offset) for log in again.logs] == [(0, 539), (0, 149)]
    assert sorted(each.name for each in (tmp_path / "out").iterdir() if each.is_dir()) == ["carved-0", "carved-1"]


def test_an_interruption_while_logs_are_written(tmp_path: Path) -> None:
    image = DiskImage(12)
    for producer in range(4):
        image.foreign(100)
        image.piece(some_log(0, 10, producer=producer))
    path = image.write(tmp_path / "image")

    class Impatient(OsFiles):
        def rename(self, source: StrPath, target: StrPath) -> None:
            if str(target).endswith("carved-2"):
                raise KeyboardInterrupt
            super().rename(source, target)

    report = carve([path], tmp_path / "out", out_files=Impatient())
    assert report.interrupted
    assert sorted(each.name for each in (tmp_path / "out").iterdir() if each.is_dir()) == ["carved-0", "carved-1"]
    again = carve([path], tmp_path / "out", resume=True)
    check(again, image)
    assert not again.interrupted


def test_many_logs_at_the_same_offsets_are_not_read_for_each_other() -> None:
    chance = random.Random(1)
    found = [
        Fragment("image", chance.randrange(1 << 40), 0, base, base + 19, batches=3, digest=chance.getrandbits(60), first_crc=base ^ log)
        for log in range(40)
        for base in range(log % 10, 400, 20)
    ]
    reads = 0

    def items(fragment: Fragment) -> Iterator[tuple[int, int, int, int]]:
        nonlocal reads
        reads += 1
        yield fragment.base, fragment.last, fragment.first_crc, fragment.start

    logs = group(found, items, lambda _: False)
    assert sum(len(log.pieces) for log in logs) == len(found)
    assert reads <= len(found)
