"""Evidence of directories: what is recorded and what is copied. No path leads elsewhere."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.errors import NotFoundError, UsageError
from kops.files import File, OsFiles
from kops.forensics.evidence.case import FORECAST, SEGMENTS, VERIFY
from kops.forensics.evidence.check import check_case
from kops.forensics.evidence.collect import Collected, CollectOptions, collect
from kops.forensics.evidence.contents import CaseWriteError, DescriptorFile
from kops.forensics.evidence.names import get_name
from tests.support import corpus

STRANGE = (b"..a", b"a..b", b"new\nline", b"tab\tand \\ and \r", b"\xff\xfe.log", b"-rf", b"<script>alert(1)<script>", "größe".encode())


def manifest_of(case: Path) -> dict[str, Any]:
    return json.loads((case / "manifest.json").read_bytes())  # type: ignore[no-any-return]


def entries_of(case: Path) -> dict[bytes, dict[str, Any]]:
    return {get_name(entry, "path"): entry for entry in manifest_of(case)["entries"]}


def damaged_log(folder: Path, case_id: str = "damage-4.3.0-flip-body-old") -> Path:
    return corpus.load(case_id).copy(folder / "kafka", "before")


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    found = {}
    for path in sorted(folder.rglob("*")):
        status = path.lstat()
        found[str(path)] = (status.st_mode, status.st_mtime_ns, path.read_bytes() if stat.S_ISREG(status.st_mode) else b"")
    return found


def run(folder: Path | list[Path], case: Path, open_file: Callable[[int, str], File] = DescriptorFile, **options: Any) -> Collected:
    folders = folder if isinstance(folder, list) else [folder]
    return collect([str(each) for each in folders], str(case), CollectOptions(**options), open_file=open_file)


def test_a_log_directory(tmp_path: Path) -> None:
    source = damaged_log(tmp_path)
    before = state(source)
    made = run(source, tmp_path / "case", examiner="Zoë", note="two\nlines", case_number="17", version="1.2", arguments=["kops", "x"])
    assert state(source) == before
    assert made.complete and not made.failed and made.totals["changed"] == 0
    manifest = manifest_of(tmp_path / "case")
    assert manifest["schema"] == "kops.evidence/v1"
    assert manifest["case"] == {"number": "17", "examiner": "Zoë", "note": "two\nlines"}
    assert manifest["arguments"] == ["kops", "x"]
    assert made.manifest_sha256 == hashlib.sha256((tmp_path / "case" / "manifest.json").read_bytes()).hexdigest()
    copied = tmp_path / "case" / "data" / "1" / "kafka"
    for path in source.rglob("*"):
        entry = entries_of(tmp_path / "case")[os.fsencode(path.relative_to(source))]
        copy = copied / path.relative_to(source)
        assert copy.stat().st_mtime_ns == path.stat().st_mtime_ns
        assert entry["inode"] == path.stat().st_ino
        if path.is_file():
            assert copy.read_bytes() == path.read_bytes()
            assert not copy.stat().st_mode & 0o222
            assert entry["sha256"] == entry["sha256_after"] == hashlib.sha256(path.read_bytes()).hexdigest()
    report = check_case(str(tmp_path / "case"), manifest_sha256=made.manifest_sha256, originals=True)
    assert report.differences == []


def test_findings_name_the_originals(tmp_path: Path) -> None:
    source = damaged_log(tmp_path)
    for reference in (False, True):
        case = tmp_path / f"case-{reference}"
        made = run(source, case, reference=reference)
        assert made.problems["error"] == 1
        found = json.loads((case / VERIFY).read_bytes())["findings"][0]
        assert found["code"] == "batch-crc-mismatch"
        assert Path(found["file"]).is_relative_to(source) and Path(found["file"]).exists()
        forecast = json.loads((case / FORECAST).read_bytes())["forecasts"][0]
        assert Path(forecast["partitions"][0]["dir"]).is_relative_to(source)
        for name in (VERIFY, FORECAST, SEGMENTS):
            assert str(case).encode() not in (case / name).read_bytes()
            assert b".partial" not in (case / name).read_bytes()
        assert (case / "data").exists() is not reference


def test_the_map_points_at_the_damaged_bytes(tmp_path: Path) -> None:
    source = damaged_log(tmp_path)
    damage = corpus.load("damage-4.3.0-flip-body-old").json["damage"]
    run(source, tmp_path / "case")
    (partition,) = json.loads((tmp_path / "case" / SEGMENTS).read_bytes())["partitions"]
    seen = {Path(each["file"]).name: each["extents"] for each in partition["segments"]}
    for each in partition["segments"]:
        ends = [0, *(extent[1] for extent in each["extents"])]
        assert [extent[0] for extent in each["extents"]] == ends[:-1] and ends[-1] == each["size"]
    bad = [(name, extent) for name, extents in seen.items() for extent in extents if extent[2] == "damaged"]
    assert len(bad) == 1
    assert bad[0][1][5] == "batch-crc-mismatch", damage


def test_what_a_start_would_give_up_is_recoverable(tmp_path: Path) -> None:
    source = damaged_log(tmp_path)
    (source / ".kafka_cleanshutdown").unlink(missing_ok=True)
    (source / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    run(source, tmp_path / "case")
    (partition,) = json.loads((tmp_path / "case" / SEGMENTS).read_bytes())["partitions"]
    lost = json.loads((tmp_path / "case" / FORECAST).read_bytes())["forecasts"][0]["partitions"][0]["lost_though_intact"]
    offsets = {n for first, last in lost for n in range(first, last + 1)}
    assert offsets
    marked = {n for each in partition["segments"] for e in each["extents"] if e[2] == "recoverable" for n in range(e[3], e[4] + 1)}
    assert marked == offsets


def test_sha256sum_accepts_it(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for number, name in enumerate(STRANGE):
        (Path(os.fsdecode(os.fsencode(source) + b"/" + name))).write_text(str(number))
    for reference in (False, True):
        case = tmp_path / f"case-{reference}"
        run(source, case, reference=reference)
        done = subprocess.run(["sha256sum", "-c", "--strict", "SHA256SUMS"], cwd=case, capture_output=True, check=False)
        assert done.returncode == 0, done
        assert done.stdout.count(b": OK") == len(STRANGE) + 4
        assert set(entries_of(case)) == {b".", *STRANGE}
        assert check_case(str(case), originals=True).differences == []


def test_links_pipes_and_devices_are_recorded_and_not_opened(tmp_path: Path) -> None:
    source = tmp_path / "data"
    outside = tmp_path / "outside"
    (source / "orders-0").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.log").write_text("secret")
    (source / "link").symlink_to(outside)
    (source / "absolute").symlink_to("/etc/passwd")
    (source / "orders-0" / "00000000000000000000.log").symlink_to(outside / "secret.log")
    (source / "loop").symlink_to("loop")
    os.mkfifo(source / "pipe")
    special = {b"link", b"absolute", b"loop", b"pipe", b"orders-0/00000000000000000000.log"}
    for reference in (False, True):
        case = tmp_path / f"case-{reference}"
        made = run(source, case, reference=reference)
        entries = entries_of(case)
        assert made.totals["special"] == len(special) and made.totals["files"] == 0
        assert get_name(entries[b"absolute"], "target") == b"/etc/passwd"
        assert entries[b"pipe"]["type"] == "fifo"
        assert b"secret" not in b"".join(path.read_bytes() for path in case.rglob("*") if path.name != "manifest.json" and path.is_file())
        if not reference:
            assert {os.fsencode(each.name) for each in (case / "data" / "1" / "data").iterdir()} == {b"orders-0"}
        assert check_case(str(case), originals=True).differences == []


def test_a_directory_that_becomes_a_link_meanwhile_leads_nowhere(tmp_path: Path) -> None:
    source, outside = tmp_path / "data", tmp_path / "outside"
    for folder in (source / "a", source / "b", outside):
        folder.mkdir(parents=True)
        (folder / "file").write_text(str(folder))

    def swap(fd: int, path: str) -> File:
        if (source / "b").is_dir() and not (source / "b").is_symlink():
            shutil.rmtree(source / "b")
            (source / "b").symlink_to(outside)
        return DescriptorFile(fd, path)

    run(source, tmp_path / "case", swap)
    assert not (tmp_path / "case" / "data" / "1" / "data" / "b" / "file").exists()
    assert entries_of(tmp_path / "case")[b"b/file"]["status"] in ("changed", "unreadable")


def test_holes_stay_holes(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    with (source / "sparse").open("wb") as file:
        file.seek(8 << 20)
        file.write(b"x")
        file.truncate(16 << 20)
    run(source, tmp_path / "case")
    copy = tmp_path / "case" / "data" / "1" / "data" / "sparse"
    assert copy.stat().st_size == 16 << 20
    assert copy.stat().st_blocks <= (source / "sparse").stat().st_blocks
    entry = entries_of(tmp_path / "case")[b"sparse"]
    assert entry["sha256"] == hashlib.sha256((source / "sparse").read_bytes()).hexdigest()
    assert entry["allocated"] < 1 << 20


def test_a_file_that_changes_is_kept_as_it_was_read(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for name in ("grows", "gone", "same"):
        (source / name).write_text("before")
    reads: list[str] = []

    def change(fd: int, path: str) -> File:
        reads.append(Path(path).name)
        if reads.count("same") == 1 and reads[-1] == "same":
            (source / "grows").write_text("before, after")
            (source / "gone").unlink()
            (source / "new").write_text("new")
        return DescriptorFile(fd, path)

    made = run(source, tmp_path / "case", change)
    entries = entries_of(tmp_path / "case")
    assert [entries[name]["status"] for name in (b"grows", b"gone", b"same", b"new")] == ["changed", "changed", "collected", "appeared"]
    assert entries[b"grows"]["sha256"] != entries[b"grows"]["sha256_after"]
    assert (tmp_path / "case" / "data" / "1" / "data" / "grows").read_text() == "before"
    assert {found.code for found in made.findings} == {"file-changed"} and len(made.findings) == 3
    assert made.totals["changed"] == 3
    assert check_case(str(tmp_path / "case"), originals=True).differences == []


class BadDisk(DescriptorFile):
    """A file whose second page cannot be read."""

    def read(self, position: int, size: int) -> bytes:
        if position < 8192 and position + size > 4096:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(position, size)


def test_a_bad_disk_costs_only_the_bad_place(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    data = bytes(range(256)) * 64
    (source / "file").write_bytes(data)
    made = run(source, tmp_path / "case", BadDisk)
    entry = entries_of(tmp_path / "case")[b"file"]
    kept = data[:4096] + bytes(4096) + data[8192:]
    assert (tmp_path / "case" / "data" / "1" / "data" / "file").read_bytes() == kept
    assert (entry["status"], entry["unreadable"], entry["sha256"]) == ("partial", [[4096, 8192]], hashlib.sha256(kept).hexdigest())
    assert made.failed
    assert [(found.code, found.position, found.length) for found in made.findings] == [("file-unreadable", 4096, 4096)]


def test_a_file_that_cannot_be_opened_is_listed(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    (source / "a").write_text("a")
    (source / "b").write_text("b")

    def refuse(fd: int, path: str) -> File:
        if path.endswith("/a"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return DescriptorFile(fd, path)

    made = run(source, tmp_path / "case", refuse)
    entries = entries_of(tmp_path / "case")
    assert (entries[b"a"]["status"], entries[b"a"]["detail"]) == ("unreadable", "Permission denied")
    assert entries[b"b"]["status"] == "collected"
    assert made.failed and made.totals["unreadable"] == 1
    assert check_case(str(tmp_path / "case")).differences == []


def test_interrupted(tmp_path: Path) -> None:
    source = tmp_path / "data"
    source.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_text(name)
    (source / "later").mkdir()

    class Stop(DescriptorFile):
        def read(self, position: int, size: int) -> bytes:
            if self.path.endswith("/b"):
                raise KeyboardInterrupt
            return super().read(position, size)

    made = run(source, tmp_path / "case", Stop)
    assert not made.complete
    assert [entries_of(tmp_path / "case")[name]["status"] for name in (b"a", b"b", b"c")] == ["collected", "not-collected", "not-collected"]
    assert (made.totals["not_collected"], entries_of(tmp_path / "case")[b"later"]["status"]) == (2, "not-collected")
    report = check_case(str(tmp_path / "case"))
    assert report.differences == []
    assert "the collection was interrupted: the case is not complete" in report.notes
    assert sorted(each.name for each in tmp_path.iterdir()) == ["case", "data"]


def test_a_running_broker_is_told(tmp_path: Path) -> None:
    source = damaged_log(tmp_path)
    script = "import sys; from kops.files import OsFiles; lock = OsFiles().lock(sys.argv[1]); print(flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script, str(source)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as broker:
        assert broker.stdout is not None
        broker.stdout.readline()
        made = run(source, tmp_path / "case")
        assert OsFiles(read_only=True).lock_owner(str(source)) == broker.pid
        assert broker.stdin is not None
        broker.stdin.close()
    assert any(f"a broker is running here (process {broker.pid} holds .lock)" in warning for warning in made.warnings)
    assert manifest_of(tmp_path / "case")["sources"][0]["lock_holder"] == broker.pid
    with OsFiles().lock(str(source)):  # the collection has left no lock behind
        pass


class LittleRoom:
    """A disk with room for so many bytes in the directory `place`: its files are counted before each write."""

    def __init__(self, place: Path, room: int) -> None:
        self.place, self.room = place, room
        self.pwrite, self.fdopen = os.pwrite, os.fdopen

    def left(self) -> int:
        links = {each.stat().st_ino: each.stat().st_size for each in self.place.rglob("*") if each.is_file()}
        return self.room - sum(links.values())

    def write(self, fd: int, data: bytes, position: int) -> int:
        if len(data) > self.left():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return self.pwrite(fd, data, position)

    def open(self, fd: int, mode: str) -> Any:
        file: Any = self.fdopen(fd, mode)
        disk = self

        class Limited(type(file)):  # type: ignore[misc]
            def write(self, data: bytes) -> int:
                if len(data) > disk.left():
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                return int(super().write(data))

        return Limited(file.detach())


@pytest.mark.parametrize("room", [45_000, 41_500, 32_000])
def test_a_full_disk_leaves_what_there_was_room_for(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """45,000 bytes are enough for four files and the documents, 41,500 for four files but not for the documents."""
    source = tmp_path / "data"
    source.mkdir()
    for name in "abcdef":
        (source / name).write_bytes(name.encode() * 10_000)
    (tmp_path / "disk").mkdir()
    case = tmp_path / "disk" / "case"
    disk = LittleRoom(tmp_path / "disk", room)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", disk.write)
        patch.setattr(os, "fdopen", disk.open)
        made = run(source, case)
        collected = [name for name in (b"a", b"b", b"c", b"d", b"e", b"f") if entries_of(case)[name]["status"] == "collected"]
        assert collected == [b"a", b"b", b"c", b"d"][: 4 if room == 45_000 else 3 if room > 40_000 else 2]
        assert not made.complete and made.failed and "No space left on device" in made.stopped
        assert check_case(str(case)).differences == []
        disk.room += 15_000
        again = run(source, case, resume=True)
        assert not again.complete
        assert [name for name in collected if entries_of(case)[name]["status"] != "collected"] == []
    whole = run(source, case, resume=True)
    assert whole.complete and not whole.stopped
    assert {each["status"] for each in entries_of(case).values() if each["type"] == "file"} == {"collected"}
    assert check_case(str(case)).differences == []
    assert sorted(each.name for each in case.parent.iterdir()) == ["case"]


def test_a_full_disk_without_room_for_one_file_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "data"
    source.mkdir()
    (source / "file").write_text("x")

    def full(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(CaseWriteError, match="No space left on device"):
        run(source, tmp_path / "case")
    assert [each.name for each in tmp_path.iterdir()] == ["data"]


def test_what_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "data"
    (source / "inner").mkdir(parents=True)
    (tmp_path / "exists").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    (tmp_path / "file").write_text("x")
    (tmp_path / "into").symlink_to(source)
    for out in ("exists", "dangling", "file"):
        with pytest.raises(UsageError, match="already exists"):
            run(source, tmp_path / out)
    for out in ("data/case", "data/inner/case", "into/case"):
        with pytest.raises(UsageError, match="nothing may be written"):
            run(source, tmp_path / out)
    with pytest.raises(NotFoundError, match="does not exist"):
        run(source, tmp_path / "no" / "case")
    with pytest.raises(NotFoundError, match="no such directory"):
        run(tmp_path / "no", tmp_path / "case")
    with pytest.raises(UsageError, match="not a directory"):
        run(tmp_path / "file", tmp_path / "case")
    with pytest.raises(UsageError, match="one lies in the other"):
        run([source / "inner", source], tmp_path / "case")
    with pytest.raises(UsageError, match="unknown level"):
        run(source, tmp_path / "case", level="most")
    assert run([source, tmp_path / "into"], tmp_path / "case").totals["files"] == 0
    assert len(manifest_of(tmp_path / "case")["sources"]) == 1
    assert list(source.rglob("*")) == [source / "inner"]
