"""Salvage from several copies and leftovers: its shapes, its rejections, and what an interruption leaves."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.config.topic import TopicConfig
from kops.errors import MissingDependencyError, NotFoundError, UsageError
from kops.files import FaultyFiles, OsFiles, OverlayFiles
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import repair
from kops.forensics.verify.run import verify
from kops.records import BytesSource, Damage, Record, scan
from kops.records.build import build_batch
from kops.storage.formats.names import log_file_name
from kops.storage.start.loader import load_partition
from tests.support import corpus


def batch(base: int, count: int, *, epoch: int = 0, tag: str = "v", magic: int = 2, codec: str = "none") -> bytes:
    records = [Record(base + i, 1_700_000_000_000 + base + i, "CreateTime", b"k", f"{tag}{base + i}".encode()) for i in range(count)]
    return build_batch(records, magic=magic, codec=codec, partition_leader_epoch=epoch)


def folder(path: Path, logs: dict[str, bytes]) -> Path:
    path.mkdir(parents=True)
    for name, data in logs.items():
        (path / name).write_bytes(data)
    return path


def name(offset: int, suffix: str = "") -> str:
    return log_file_name(offset, "log") + suffix


def values(path: Path) -> dict[int, str]:
    """Return offset → value of everything in a recovered folder."""
    found: dict[int, str] = {}
    for log in sorted(path.glob("*.log")):
        for item in scan(BytesSource(log.read_bytes())):
            assert not isinstance(item, Damage)
            found.update((record.offset, (record.value or b"").decode()) for record in item.records())
    return found


def flip(data: bytes, position: int) -> bytes:
    return data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :]


def expected(*ranges: tuple[int, int], tag: str = "v") -> dict[int, str]:
    return {offset: f"{tag}{offset}" for first, last in ranges for offset in range(first, last + 1)}


def test_a_hole_is_filled_from_what_kafka_had_put_away(tmp_path: Path) -> None:
    good = batch(0, 3) + batch(3, 3) + batch(6, 3)
    size = len(batch(0, 3))
    damaged = flip(good, size + 80)
    for suffix in (".swap", ".cleaned", ".deleted"):
        source = folder(tmp_path / suffix / "t-0", {name(0): damaged, name(0, suffix): good})
        report = recover([source], tmp_path / suffix / "out")
        assert values(Path(report.partitions[0].output)) == expected((0, 8))
        assert not report.lossy
        assert report.damaged
        report = recover([source], tmp_path / suffix / "live-only", leftovers=False)
        assert values(Path(report.partitions[0].output)) == expected((0, 2), (6, 8))
        assert report.partitions[0].lost == [(3, 5)]


def test_replicas_complete_each_other_and_the_later_epoch_wins(tmp_path: Path) -> None:
    one = batch(0, 3, epoch=1) + batch(3, 3, epoch=1, tag="old") + batch(6, 3, epoch=1, tag="old")
    two = flip(batch(0, 3, epoch=1), 70) + batch(3, 3, epoch=2, tag="new")
    paths = [folder(tmp_path / "a" / "t-0", {name(0): one}), folder(tmp_path / "b" / "t-0", {name(0): two})]
    for order in (paths, paths[::-1]):
        out = tmp_path / order[0].parent.name
        report = recover(order, out / "out")
        assert values(out / "out" / "t-0") == expected((0, 2)) | expected((3, 5), tag="new") | expected((6, 8), tag="old")
        assert report.partitions[0].batches == 3


def test_a_hole_that_a_repair_closed_is_filled_from_another_copy(tmp_path: Path) -> None:
    good = batch(0, 3) + batch(3, 3) + batch(6, 3)
    damaged = folder(tmp_path / "a" / "t-0", {name(0): flip(good, len(batch(0, 3)) + 80)})
    repair([damaged], mode="all")
    assert not verify([damaged], "full").has_problems
    report = recover([damaged], tmp_path / "alone")
    assert (report.partitions[0].lost, report.lossy) == ([(3, 5)], True)
    other = folder(tmp_path / "b" / "t-0", {name(0): good})
    report = recover([damaged, other], tmp_path / "both")
    assert values(tmp_path / "both" / "t-0") == expected((0, 8))
    assert not report.lossy


def test_states_of_directories(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    unique = "0123456789abcdef0123456789abcdef"
    folder(log_dir / "t-0", {name(0): batch(0, 3)})
    folder(log_dir / f"t-0.{unique}-future", {name(0): batch(0, 3) + batch(3, 3)})
    folder(log_dir / f"t-1.{unique}-stray", {name(0): batch(0, 3)})
    folder(log_dir / f"gone-0.{unique}-delete", {name(0): batch(0, 3)})
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    report = recover([log_dir], tmp_path / "out")
    assert [entry.name for entry in report.partitions] == ["t-0", "t-1"]
    assert values(tmp_path / "out" / "t-0") == expected((0, 5))
    assert len(report.skipped) == 1 and "deleted" in report.skipped[0]
    report = recover([log_dir / f"gone-0.{unique}-delete"], tmp_path / "gone")
    assert values(tmp_path / "gone" / "gone-0") == expected((0, 2))


def with_id(path: Path, letter: str) -> Path:
    (path / "partition.metadata").write_text(f"version: 0\ntopic_id: {letter * 21}A")
    return path


def test_another_topic_of_the_same_name_is_left_out(tmp_path: Path) -> None:
    """A topic was deleted and made again. The leftovers of the first one have another topic id."""
    log_dir = tmp_path / "log"
    stray = folder(log_dir / "t-0.0123456789abcdef0123456789abcdef-stray", {name(0): batch(0, 9, epoch=5, tag="foreign")})
    live = folder(log_dir / "t-0", {name(0): batch(0, 3)})
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")
    with_id(stray, "b")
    with_id(live, "c")
    report = recover([log_dir], tmp_path / "out")
    assert values(tmp_path / "out" / "t-0") == expected((0, 2))
    assert (tmp_path / "out" / "t-0" / "partition.metadata").read_text().endswith("c" * 21 + "A")
    assert len(report.skipped) == 1 and f"{stray}: it belongs to another topic" in report.skipped[0]
    assert not report.lossy
    recover([stray], tmp_path / "alone")
    assert values(tmp_path / "alone" / "t-0") == expected((0, 8), tag="foreign")
    # Of two live folders, the first one that is named decides which topic it is. A folder without an id, or with the same one, counts as a
    # copy.
    other = with_id(folder(tmp_path / "b" / "t-0", {name(0): batch(0, 3) + batch(3, 2)}), "d")
    report = recover([live, other], tmp_path / "two")
    assert values(tmp_path / "two" / "t-0") == expected((0, 2)) and len(report.skipped) == 1
    with_id(other, "c")
    assert not recover([live, other], tmp_path / "same").skipped
    assert values(tmp_path / "same" / "t-0") == expected((0, 4))
    (other / "partition.metadata").write_text("?")
    assert not recover([live, other], tmp_path / "unknown").skipped


def test_what_stands_beside_the_logs_tells_what_is_gone(tmp_path: Path) -> None:
    log_dir = tmp_path / "log"
    live = folder(log_dir / "t-0", {name(3): batch(3, 3), name(6): b"", name(9): batch(9, 3)})
    (log_dir / "meta.properties").write_text("version=1\ncluster.id=c\nnode.id=1\n")

    def lost(*, point: int, high: int, start: int = 0, cleaned: int = 0, epoch_start: int = 0) -> list[tuple[int, int]]:
        (live / "leader-epoch-checkpoint").write_text(f"0\n1\n0 {epoch_start}\n")
        offsets = {"recovery-point-offset": point, "replication-offset": high, "log-start-offset": start, "cleaner-offset": cleaned}
        for checkpoint, offset in offsets.items():
            (log_dir / f"{checkpoint}-checkpoint").write_text(f"0\n1\nt 0 {offset}\n")
        (entry,) = recover([log_dir], tmp_path / "out", force=True).partitions
        shutil.rmtree(tmp_path / "out")
        assert entry.lossy == bool(entry.missing)
        return entry.lost

    assert lost(point=15, high=15) == [(0, 2), (6, 8), (12, 14)]
    assert lost(point=12, high=15, epoch_start=3) == lost(point=15, high=12, epoch_start=3) == lost(point=9, high=9, start=3) == [(6, 8)]
    assert lost(point=12, high=12, epoch_start=3, cleaned=9) == []
    assert lost(point=12, high=12, epoch_start=1, start=2, cleaned=9) == [(2, 2)]


@pytest.mark.parametrize("case_id", [case for case in corpus.cases() if "compacted" in case])
def test_what_compaction_took_is_not_lost(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    sources = [case.root / name for name in ("data", "clean") if (case.root / name).is_dir()]
    assert not recover(sources, tmp_path / "out").lossy


@pytest.mark.parametrize(("magic", "codec"), [(0, "none"), (0, "gzip"), (0, "snappy"), (1, "none"), (1, "gzip"), (2, "none"), (2, "gzip")])
def test_renumbered_logs_have_no_gaps(magic: int, codec: str, tmp_path: Path) -> None:
    parts = [batch(base, 3, magic=magic, codec=codec) for base in (10, 13, 16, 19)]
    data = parts[0] + flip(parts[1], len(parts[1]) - 2) + parts[2] + parts[3]
    source = folder(tmp_path / "t-0", {name(10): data})
    recover([source], tmp_path / "out", renumber=True)
    got = values(tmp_path / "out" / "t-0")
    missing = 1 if magic < 2 and codec == "none" else 3
    assert list(got) == list(range(10, 22 - missing))
    kept = [f"v{offset}" for offset in range(10, 22) if not (13 <= offset <= 15 and (missing == 3 or offset == 15))]
    assert list(got.values()) == kept
    kept_gaps = recover([source], tmp_path / "gaps")
    assert list(values(tmp_path / "gaps" / "t-0").values()) == kept
    assert kept_gaps.partitions[0].gaps == [(16 - missing, 15)]


@pytest.mark.parametrize("case_id", ["damage-4.3.0-two-flips", "damage-4.3.0-control-batch-flip", "damage-4.3.0-batches-swapped"])
def test_a_broker_loads_what_was_recovered_without_a_change(case_id: str, tmp_path: Path) -> None:
    case = corpus.load(case_id)
    report = recover([case.root / "before"], tmp_path / "out")
    (entry,) = report.partitions
    for clean in (True, False):
        files = OverlayFiles(OsFiles(read_only=True))
        loaded = load_partition(
            files, entry.output, TopicConfig(), clean_shutdown=clean, now_ms=case.json["clockMs"], producer_id_expiration_ms=2147483647
        )
        assert entry.last_offset is not None
        assert loaded.log_end_offset == entry.last_offset + 1
        for path in files.walk(entry.output):
            if path.endswith(".log"):
                assert files.read_all(path) == Path(path).read_bytes()
    codes = {found.code for found in verify([entry.output], "full").findings if found.is_problem}
    assert codes <= {"offset-gap", "segment-gap", "sequence-gap", "index-incomplete"}


def test_jsonl_and_parquet_hold_the_same_records(tmp_path: Path) -> None:
    case = corpus.load("damage-4.3.0-flip-body-old")
    recover([case.root / "before"], tmp_path / "json", shape="jsonl")
    report = recover([case.root / "before"], tmp_path / "parquet", shape="parquet")
    (entry,) = report.partitions
    lines = [json.loads(line) for line in (tmp_path / "json" / f"{entry.name}.jsonl").read_text().splitlines()]
    truth = {row["offset"]: row for row in case.lines("truth/records/clean.read_uncommitted.jsonl")}
    assert [{key: line[key] for key in truth[line["offset"]]} for line in lines] == [truth[line["offset"]] for line in lines]
    from pyarrow import parquet

    rows: list[dict[str, Any]] = parquet.read_table(entry.output).to_pylist()
    assert [row["offset"] for row in rows] == [line["offset"] for line in lines]
    assert entry.records == len(lines) == len(rows)


@pytest.mark.parametrize("shape", ["segment", "jsonl", "parquet"])
def test_a_topic_whose_name_is_no_utf8_is_written_under_it(shape: Any, tmp_path: Path) -> None:
    """No broker makes such a folder, but a damaged file system or a person may."""
    odd = os.fsdecode(b"or\xffders-0")
    source = folder(tmp_path / "in" / odd, {name(0): batch(0, 3)})
    folder(tmp_path / "in" / "good-0", {name(0): batch(0, 3)})
    report = recover([tmp_path / "in"], tmp_path / "out", shape=shape)
    assert [(entry.name, entry.records, entry.complete) for entry in report.partitions] == [("good-0", 3, True), (odd, 3, True)]
    if shape == "segment":
        assert values(tmp_path / "out" / odd) == expected((0, 2))
    else:
        written = tmp_path / "out" / f"{odd}.{shape}"
        assert written.stat().st_mode == (tmp_path / "out" / f"good-0.{shape}").stat().st_mode
        assert written.read_bytes() == (tmp_path / "out" / f"good-0.{shape}").read_bytes()
    alone = recover([source / name(0)], tmp_path / "alone", shape=shape)
    assert [entry.name for entry in alone.partitions] == [odd]
    again = recover([tmp_path / "in"], tmp_path / "out", shape=shape, resume=True)
    assert again.to_json() == report.to_json()


@pytest.mark.parametrize("shape", ["segment", "jsonl", "parquet"])
def test_a_name_as_long_as_kafka_allows(shape: Any, tmp_path: Path) -> None:
    """A topic of 249 characters and a partition of five digits fill the 255 bytes of a file's name."""
    long = "t" * 249 + "-12345"
    folder(tmp_path / "in" / long, {name(0): batch(0, 3)})
    report = recover([tmp_path / "in"], tmp_path / "out", shape=shape)
    [entry] = report.partitions
    assert (entry.name, entry.records, entry.complete) == (long, 3, True)
    assert (tmp_path / "out" / long).is_dir() == (shape == "segment")
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted([Path(entry.output).name, "kops-recover.json"])
    assert recover([tmp_path / "in"], tmp_path / "out", shape=shape, resume=True).to_json() == report.to_json()


def test_parquet_names_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)  # as if it were not installed
    with pytest.raises(MissingDependencyError, match=r"kops\[spark\]"):
        recover([folder(tmp_path / "t-0", {name(0): batch(0, 3)})], tmp_path / "out", shape="parquet")
    assert not (tmp_path / "out").exists()


def test_what_is_refused(tmp_path: Path) -> None:
    source = folder(tmp_path / "t-0", {name(0): batch(0, 3)})
    with pytest.raises(NotFoundError):
        recover([tmp_path / "missing"], tmp_path / "out")
    with pytest.raises(UsageError, match="only read"):
        recover([source], source / "out")
    with pytest.raises(UsageError, match="must be one of"):
        recover([source], tmp_path / "out", shape="xml")  # type: ignore[arg-type]
    full = folder(tmp_path / "full", {"x": b""})
    with pytest.raises(UsageError, match="not empty"):
        recover([source], full)
    with pytest.raises(UsageError, match="a directory is needed"):
        recover([source], full / "x")
    with pytest.raises(UsageError, match=r"no kops-recover\.json"):
        recover([source], full, resume=True)
    recover([source], full, force=True)
    assert values(full / "t-0") == expected((0, 2))
    assert (full / "x").exists()


def contents(path: Path) -> dict[str, bytes]:
    return {each.relative_to(path).as_posix(): each.read_bytes() for each in path.rglob("*") if each.is_file()}


def interrupt_after(calls: int) -> Callable[[int], None]:
    left = [calls]

    def on_bytes(_: int) -> None:
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt

    return on_bytes


def test_an_interruption_leaves_whole_partitions_and_resume_completes_them(tmp_path: Path) -> None:
    for number in range(3):
        folder(tmp_path / "log" / f"t-{number}", {name(0): batch(0, 3) + batch(3, 3), name(6): batch(6, 3)})
    whole = recover([tmp_path / "log"], tmp_path / "whole")
    assert not whole.interrupted
    report = recover([tmp_path / "log"], tmp_path / "out", on_bytes=interrupt_after(5))
    assert report.interrupted
    assert [entry.name for entry in report.partitions] == ["t-0"]
    assert sorted(os.listdir(tmp_path / "out")) == ["kops-recover.json", "t-0"]
    assert contents(tmp_path / "out" / "t-0") == contents(tmp_path / "whole" / "t-0")
    shutil.copytree(tmp_path / "out" / "t-0", tmp_path / "out" / "t-1.kops-partial")
    report = recover([tmp_path / "log"], tmp_path / "out", resume=True)
    assert not report.interrupted
    got, wanted = contents(tmp_path / "out"), contents(tmp_path / "whole")
    del got["kops-recover.json"], wanted["kops-recover.json"]
    assert got == wanted
    assert [entry.name for entry in report.partitions] == ["t-0", "t-1", "t-2"]


def test_an_interruption_while_writing_leaves_whole_segments(tmp_path: Path) -> None:
    logs = {name(base): batch(base, 3) + batch(base + 3, 3) for base in (0, 6, 12)}
    source = folder(tmp_path / "t-0", logs)

    class Interrupted(OsFiles):
        writes = 0

        def open(self, path: Any, mode: Any = "r") -> Any:
            if path.endswith(name(12)):
                raise KeyboardInterrupt
            return super().open(path, mode)

    report = recover([source], tmp_path / "out", out_files=Interrupted())
    assert report.interrupted
    (entry,) = report.partitions
    assert not entry.complete
    assert values(tmp_path / "out" / "t-0") == expected((0, 11))
    assert sorted(path.name for path in (tmp_path / "out" / "t-0").glob("*.log")) == [name(0), name(6)]
    assert json.loads((tmp_path / "out" / "kops-recover.json").read_text())["interrupted"] is True
    recover([source], tmp_path / "out", resume=True)
    assert values(tmp_path / "out" / "t-0") == expected((0, 17))


class Interrupted(FaultyFiles):
    """Files that raise Ctrl-C in one operation."""

    def step(self, what: str, part: Callable[[int], None] | None = None) -> None:
        self.operations.append(what)
        if len(self.operations) == self.at:
            raise KeyboardInterrupt


@pytest.mark.once
def test_ctrl_c_at_any_step_of_a_partition_leaves_nothing_half(tmp_path: Path) -> None:
    sources = [folder(tmp_path / f"t-{i}", {name(0): batch(0, 3), name(3): batch(3, 3)}) for i in range(2)]
    counted = FaultyFiles(OsFiles())
    recover(sources, tmp_path / "count", out_files=counted)
    steps = [number for number, what in enumerate(counted.operations, 1) if "t-1.kops-partial" in what]
    assert len(steps) > 10
    # The last one is the sync of the directory. The partition already has its name then.
    for at in [*steps, steps[-1] + 1]:
        out = tmp_path / f"out-{at}"
        report = recover(sources, out, out_files=Interrupted(OsFiles(), at=at))
        assert report.interrupted
        assert [entry.name for entry in report.partitions] == sorted(path.name for path in out.iterdir() if path.is_dir())
        assert not list(out.glob("*.kops-partial"))
        assert contents(out / "t-0") == contents(tmp_path / "count" / "t-0")
        assert not recover(sources, out, resume=True).interrupted
        assert contents(out / "t-1") == contents(tmp_path / "count" / "t-1")


def test_a_full_disk_leaves_nothing_that_looks_whole(tmp_path: Path) -> None:
    source = folder(tmp_path / "t-0", {name(0): batch(0, 3), name(3): batch(3, 3)})
    counted = FaultyFiles(OsFiles())
    recover([source], tmp_path / "count", out_files=counted)
    writes = [number for number, what in enumerate(counted.operations, 1) if what.startswith("write ")]
    for at in writes[:-1]:
        out = tmp_path / f"out-{at}"
        with pytest.raises(OSError, match="No space left"):
            recover([source], out, out_files=FaultyFiles(OsFiles(), at=at, error=28))
        assert not (out / "t-0").exists() or contents(out / "t-0") == contents(tmp_path / "count" / "t-0")
        assert not list(out.glob("*.kops-partial"))


def test_a_full_disk_leaves_no_parquet_that_looks_whole(tmp_path: Path) -> None:
    source = folder(tmp_path / "t-0", {name(0): batch(0, 3)})
    counted = FaultyFiles(OsFiles())
    recover([source], tmp_path / "count", shape="parquet", out_files=counted)
    writes = [number for number, what in enumerate(counted.operations, 1) if what.startswith("write ") and ".parquet" in what]
    assert writes
    for at in writes:
        out = tmp_path / f"out-{at}"
        with pytest.raises(OSError, match="No space left"):
            recover([source], out, shape="parquet", out_files=FaultyFiles(OsFiles(), at=at, error=28))
        assert list(out.iterdir()) == []


def test_the_input_is_never_written(tmp_path: Path) -> None:
    case = corpus.load("damage-4.3.0-two-flips")
    log_dir = case.copy(tmp_path / "log", "before")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log_dir.rglob("*") if path.is_file()}
    for path in [log_dir, *log_dir.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    recover([log_dir], tmp_path / "out")
    for path in [log_dir, *log_dir.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in log_dir.rglob("*") if path.is_file()} == before
