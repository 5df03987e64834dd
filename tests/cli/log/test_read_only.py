"""No inspection command opens for writing, creates, renames or removes anything in its input. The tests watch the interpreter's audit
events.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kops.cli.running.exit_codes import FAILED, USAGE
from tests.cli.conftest import Ran
from tests.support import corpus
from tools import demo

Kops = Callable[..., Ran]
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
CHANGES = {
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "os.truncate",
    "os.utime",
    "os.chmod",
    "os.chown",
    "os.link",
    "os.symlink",
    "shutil.move",
}
INSPECTIONS = (
    "log ls IN",
    "log ls --deep --format json IN",
    "log dump IN",
    "log dump --format kafka --deep-iteration --print-data-log IN",
    "log dump --print-data-log --format jsonl --isolation read_committed IN",
    "log export --raw IN",
    "log verify --level quick --jobs 1 IN",
    "log verify --level crc --jobs 1 IN",
    "log verify --level deep --jobs 1 IN",
    "log verify --level full --jobs 1 IN",
    "log verify --level full --jobs 2 IN",
    "log diff ALL",
    "log heal -n IN --from OTHER",
    "log stats --deep --jobs 1 IN",
    "log compaction --config cleanup.policy=compact IN",
    "log timeline --format bodyfile IN",
    "log grep --key . --txn-state none IN",
    "log forecast IN",
    "log forecast --assume crash --recovery-point 0 IN",
    "log offsets IN",
    "log offsets --as reset-csv IN",
    "log txnstate IN",
    "log txns --empty IN",
    "log meta ls IN",
    "log meta cat IN topics",
    "log meta find IN",
    "log meta diff IN",
    "log meta verify IN",
    "log index check IN",
    "log index diff IN",
    "log index rebuild -n IN",
    "log repair -n IN",
    "log carve --out OUT FILE",
    "log undelete -n IN",
    "log why-deleted IN",
    "log recover --out OUT IN",
    "log recover --out OUT --as jsonl IN",
    "log compact --out OUT IN",
    "evidence collect --out OUT IN",
    "evidence collect --reference --out OUT IN",
)


class Watch:
    """A recorder of everything that is done to paths below a folder. An audit hook stays for the life of the process, so there is only one,
    which is switched on and off.
    """

    def __init__(self) -> None:
        self.folder: str | None = None
        self.seen: list[str] = []
        sys.addaudithook(self.hook)

    def hook(self, event: str, arguments: tuple[object, ...]) -> None:
        """Record an event. The interpreter calls this."""
        if self.folder is None or (event != "open" and event not in CHANGES):
            return
        if event == "open" and not (isinstance(arguments[2], int) and arguments[2] & WRITING):
            return
        paths = [os.fsdecode(path) for path in arguments[:2] if isinstance(path, (str, bytes))]
        if any(os.path.abspath(path).startswith(self.folder) for path in paths):
            self.seen.append(f"{event} {arguments}")


@pytest.fixture(scope="module")
def watch() -> Watch:
    return Watch()


def state(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Return the mode, modification time and contents of every file by path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        stat = path.stat()
        found[str(path)] = (stat.st_mode, stat.st_mtime_ns, path.read_bytes() if path.is_file() else b"")
    return found


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the log directory of one broker with a flipped bit, a broken index and a torn tail."""
    folder = tmp_path_factory.mktemp("read-only")
    case = corpus.load(demo.CASE)
    for broker in demo.BROKERS:
        case.copy(folder / broker, f"nodes/{broker}")
    demo.damage(folder)
    return folder


@pytest.mark.parametrize("line", INSPECTIONS)
def test_the_input_is_only_read(line: str, kops: Kops, watch: Watch, damaged: Path, tmp_path: Path) -> None:
    for broker in demo.BROKERS:
        folder = damaged / broker
        before = state(damaged)
        watch.seen.clear()
        watch.folder = str(damaged)
        try:
            segment = max(folder.rglob("*.log"), key=lambda path: path.stat().st_size)
            other = damaged / demo.BROKERS[demo.BROKERS.index(broker) - 1]
            stands_for = {"IN": folder, "OTHER": other, "ALL": damaged, "OUT": tmp_path / broker, "FILE": segment}
            ran = kops(*(str(stands_for.get(word, word)) for word in line.split()))
        finally:
            watch.folder = None
        assert not ran.code & (FAILED | USAGE), ran.err
        assert watch.seen == []
        assert state(damaged) == before


def test_the_watch_sees(watch: Watch, tmp_path: Path) -> None:
    watch.seen.clear()
    watch.folder = str(tmp_path)
    try:
        (tmp_path / "a").write_text("x")
        (tmp_path / "a").rename(tmp_path / "b")
        os.truncate(tmp_path / "b", 0)
        (tmp_path / "b").read_text()
    finally:
        watch.folder = None
    assert [seen.split()[0] for seen in watch.seen] == ["open", "os.rename", "os.truncate"]
