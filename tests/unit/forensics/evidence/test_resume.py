"""A collection that was interrupted or killed is continued. Copies are kept if they are what was read, and nothing else is trusted."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.errors import DecodeError, KopsError, UsageError
from kops.files import File
from kops.forensics.evidence.check import check_case
from kops.forensics.evidence.collect import Collected, CollectOptions, collect
from kops.forensics.evidence.contents import DescriptorFile
from kops.forensics.evidence.resume import left_behind


def run(case: Path, open_file: Callable[[int, str], File] = DescriptorFile, **options: Any) -> Collected:
    return collect([str(case.parent / "data")], str(case), CollectOptions(level="quick", **options), open_file=open_file)


def stop_at(name: str) -> Callable[[int, str], File]:
    """Return a reader that is interrupted at the file of this name."""

    def stop(fd: int, path: str) -> File:
        if Path(path).name == name:
            raise KeyboardInterrupt
        return DescriptorFile(fd, path)

    return stop


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A case of a collection that was interrupted when it had read `below/a` and `b` of four files."""
    (tmp_path / "data" / "below").mkdir(parents=True)
    for name in ("below/a", "c", "d", "b"):
        (tmp_path / "data" / name).write_text(name * 100)
    made = run(tmp_path / "case", stop_at("c"))
    assert (made.complete, made.totals["not_collected"]) == (False, 2)
    return tmp_path / "case"


def resumed(case: Path) -> tuple[Collected, list[str]]:
    """Resume, check the case, and return the files that were read, in order."""
    read: list[str] = []

    def reading(fd: int, path: str) -> File:
        read.append(Path(path).name)
        return DescriptorFile(fd, path)

    made = run(case, reading, resume=True)
    assert made.complete
    assert made.totals["not_collected"] == 0
    assert check_case(str(case), originals=True).differences == []
    for name in ("below/a", "b", "c", "d"):
        copy, original = case / "data" / "1" / "data" / name, case.parent / "data" / name
        assert copy.read_bytes() == original.read_bytes()
        assert copy.stat().st_mtime_ns == original.stat().st_mtime_ns
        assert copy.stat().st_nlink == 1
    assert sorted(each.name for each in case.parent.iterdir()) == ["case", "data"]
    return made, read


def test_only_the_rest_is_copied(interrupted: Path) -> None:
    before = json.loads((interrupted / "manifest.json").read_bytes())
    _, read = resumed(interrupted)
    assert read == ["c", "d", "b", "a", "c", "d"] or read == ["c", "d", "a", "b", "c", "d"]
    (run_before,) = json.loads((interrupted / "manifest.json").read_bytes())["resumed"]
    assert run_before["started"] == before["started"]


def test_a_copy_that_is_not_what_was_read_is_made_again(interrupted: Path) -> None:
    copy = interrupted / "data" / "1" / "data" / "b"
    copy.chmod(0o600)
    times = copy.stat()
    copy.write_bytes(copy.read_bytes()[:-1] + b"x")
    os.utime(copy, ns=(times.st_atime_ns, times.st_mtime_ns))
    made, read = resumed(interrupted)
    assert sorted(read[: read.index("d") + 1]) == ["b", "c", "d"]
    assert any("data/b: its copy is not what the interrupted collection wrote" in warning for warning in made.warnings)


def test_a_copy_that_is_gone_or_a_link_is_made_again(interrupted: Path) -> None:
    copies = interrupted / "data" / "1" / "data"
    (copies / "b").unlink()
    (copies / "b").symlink_to(interrupted.parent / "data" / "b")
    shutil.rmtree(copies / "below")
    _, read = resumed(interrupted)
    assert sorted(read) == ["a", "a", "b", "b", "c", "c", "d", "d"]


def test_an_original_that_changed_is_read_again(interrupted: Path) -> None:
    original = interrupted.parent / "data" / "b"
    times = original.stat()
    original.write_text("B" * times.st_size)
    os.utime(original, ns=(times.st_atime_ns, times.st_mtime_ns))
    _, read = resumed(interrupted)
    assert read.count("b") == 2


def test_no_run_has_less_than_the_one_before(interrupted: Path) -> None:
    made = run(interrupted, stop_at("c"), resume=True)
    assert not made.complete
    (interrupted.parent / "data" / "below" / "a").rename(interrupted.parent / "data" / "below" / "0")
    assert not run(interrupted, stop_at("0"), resume=True).complete
    (interrupted.parent / "data" / "below" / "0").rename(interrupted.parent / "data" / "below" / "a")
    assert check_case(str(interrupted)).differences == []
    made, read = resumed(interrupted)
    assert read.count("b") == 1
    assert len(json.loads((interrupted / "manifest.json").read_bytes())["resumed"]) == 3


KILLED = """
import os, sys
from kops.forensics.evidence import collect
from kops.forensics.evidence.contents import DescriptorFile

def die(fd, path):
    if path.endswith("/c"):
        os.kill(os.getpid(), 9)
    return DescriptorFile(fd, path)

collect.CHECKPOINT_BYTES = 1
collect.collect([sys.argv[1]], sys.argv[2], collect.CollectOptions(level="quick"), open_file=die)
"""


def test_a_killed_collection(interrupted: Path) -> None:
    shutil.rmtree(interrupted)
    killed = subprocess.run([sys.executable, "-c", KILLED, interrupted.parent / "data", interrupted], check=False)
    assert killed.returncode == -signal.SIGKILL
    (left,) = left_behind(str(interrupted))
    assert not interrupted.exists()
    made, read = resumed(interrupted)
    assert (read.count("a") + read.count("b"), made.totals["files"]) == (2, 4)
    assert not os.path.lexists(left)


def test_a_full_disk_leaves_what_the_interrupted_case_had(interrupted: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(fd: int, data: bytes, position: int) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        before = json.loads((interrupted / "manifest.json").read_bytes())["totals"]["bytes"]
        made = run(interrupted, resume=True)
    assert not made.complete and "No space left on device" in made.stopped
    assert made.totals["bytes"] == before > 0
    assert sorted(each.name for each in interrupted.parent.iterdir()) == ["case", "data"]
    assert check_case(str(interrupted)).differences == []
    resumed(interrupted)


def test_what_is_refused(interrupted: Path) -> None:
    place = os.open(interrupted, os.O_RDONLY)
    fcntl.flock(place, fcntl.LOCK_EX)
    with pytest.raises(KopsError, match="another collection is at work there"):
        run(interrupted, resume=True)
    os.close(place)
    with pytest.raises(UsageError, match="resume it with the same directories"):
        collect([str(interrupted.parent / "data" / "below")], str(interrupted), CollectOptions(resume=True))
    with pytest.raises(UsageError, match="only one of --reference and --resume"):
        run(interrupted, resume=True, reference=True)
    with pytest.raises(UsageError, match="nothing beside it that an interrupted collection left"):
        run(interrupted.parent / "other", resume=True)
    with pytest.raises(UsageError, match="--resume continues one that was interrupted"):
        run(interrupted)
    resumed(interrupted)
    with pytest.raises(UsageError, match="is complete; a case is never changed"):
        run(interrupted, resume=True)


@pytest.mark.parametrize("name", ["../../../secret", "/etc/passwd", "below/../../../../secret"])
def test_a_name_that_leads_out_is_refused(interrupted: Path, name: str) -> None:
    (interrupted.parent / "secret").write_text("secret")
    path = interrupted / "manifest.json"
    manifest = json.loads(path.read_bytes())
    for entry in manifest["entries"]:
        entry["path"] = name if entry["path"] == "b" else entry["path"]
    path.chmod(0o600)
    path.write_text(json.dumps(manifest))
    with pytest.raises(DecodeError):
        run(interrupted, resume=True)
