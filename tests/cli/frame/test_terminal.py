"""What a person at a terminal sees: colour and a progress bar. Neither appears anywhere else."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest

from kops.cli.printing.progress import Progress
from tests.cli.conftest import PROJECT
from tests.support import corpus

CTRL_C = "\x03"
PROBE = [sys.executable, "-m", "tests.cli.probe"]


def at_terminal(*arguments: str, typed: str = "", code: int = 0, settings: dict[str, str] | None = None, columns: int = 0) -> str:
    """Return everything that a run prints when stdout and stderr are one terminal. The first question is answered with `typed`, and the
    exit code must be `code`. A terminal of 0 `columns` does not tell its width.
    """
    environment = (
        {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "TERM")} | {"TERM": "xterm"} | (settings or {})
    )
    leader, follower = pty.openpty()
    termios.tcsetwinsize(follower, (24, columns))
    process = subprocess.Popen([*PROBE, *arguments], cwd=PROJECT, stdin=follower, stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    seen = b""
    while True:
        try:
            piece = os.read(leader, 65536)
        except OSError:  # Linux reports EIO when the last writer has gone
            break
        if not piece:
            break
        seen += piece
        if typed and b"[y/N]: " in seen:
            if typed == CTRL_C:
                wait_for_read(process.pid)  # a signal between the prompt and the read after it would wait for a key
                process.send_signal(signal.SIGINT)
            else:
                os.write(leader, typed.encode())
            typed = ""
    os.close(leader)
    assert process.wait(60) == code, seen
    return seen.decode()


def wait_for_read(pid: int) -> None:
    """Wait until a process waits for its standard input. If the system does not tell that, or not to us, wait half a second."""
    call = Path(f"/proc/{pid}/syscall")
    deadline = time.monotonic() + 60
    try:
        while call.read_text().split()[1:2] != ["0x0"]:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    except OSError:
        time.sleep(0.5)


def test_a_terminal_gets_colour_and_a_bar_that_goes_away() -> None:
    seen = at_terminal("log", "words", "x")
    assert "\x1b[31mpainted\x1b[0m" in seen
    assert "reading" in seen
    assert "B/s" in seen
    assert " left" in seen
    assert seen.index("\r\x1b[K") < seen.index("said")


@pytest.mark.parametrize(("arguments", "settings"), [(["--no-color"], {}), ([], {"NO_COLOR": "1"}), ([], {"TERM": "dumb"})])
def test_no_colour_when_told(arguments: list[str], settings: dict[str, str]) -> None:
    seen = at_terminal("log", "words", "x", *arguments, settings=settings)
    assert "painted" in seen
    assert "\x1b[31m" not in seen


@pytest.mark.parametrize(
    ("columns", "arguments", "name"),
    [
        (60, [], "orders-of-th…of-the-world"),
        (60, ["--format", "wide"], "orders-of-the-customers-of-the-world"),
        (80, [], "orders-of-the-customers-of-the-world"),
        (0, [], "orders-of-the-customers-of-the-world"),
        (20, [], "orders-of-the-customers-of-the-world"),
    ],
)
def test_long_names_on_a_narrow_terminal(columns: int, arguments: list[str], name: str) -> None:
    seen = at_terminal("log", "names", "--no-color", *arguments, columns=columns)
    line = seen.replace("\r", "").split("\n")[1]
    assert line.split()[0] == name
    assert len(line) <= columns or name.startswith("orders-of-the-")


def test_quiet_has_no_bar() -> None:
    assert "reading" not in at_terminal("log", "words", "x", "-q")


@pytest.mark.parametrize(
    ("done", "total", "elapsed_s", "text"),
    [
        (0, 1 << 20, 0.0, "scan    0%                            0 B of 1.0 MiB  0 B/s"),
        (1 << 19, 1 << 20, 2.0, "scan   50%  ████████████              512.0 KiB of 1.0 MiB  256.0 KiB/s  0:02 left"),
        (1 << 20, 1 << 20, 2.0, "scan  100%  ████████████████████████  1.0 MiB of 1.0 MiB  512.0 KiB/s  0:00 left"),
        (2048, None, 1.0, "scan  2.0 KiB  2.0 KiB/s"),
        (1, 1 << 20, 1.0, "scan    0%                            1 B of 1.0 MiB  1 B/s  291:16:15 left"),
    ],
)
def test_the_bars_text(done: int, total: int | None, elapsed_s: float, text: str) -> None:
    bar = Progress("scan", total, "B", enabled=False)
    bar.update(done)
    assert bar.text(elapsed_s, 200).rstrip() == text
    assert len(bar.text(elapsed_s, 20)) <= 19


def test_a_terminal_without_unicode_gets_a_plain_bar() -> None:
    seen = at_terminal("log", "words", "x", settings={"PYTHONIOENCODING": "latin-1"})
    assert "####" in seen
    assert "█" not in seen
    assert "\\u" not in seen


def test_units_of_ones_own() -> None:
    bar = Progress("scan", 10_000, "batches", enabled=False)
    bar.set(5000)
    assert bar.text(1.0, 200) == "scan   50%  ████████████              5,000 batches of 10,000 batches  5,000 batches/s  0:01 left"


ANSWERS = pytest.mark.parametrize(("typed", "code"), [("y\r", 1), ("n\r", 4), ("\r", 4), ("\x04", 4), (CTRL_C, 32)], ids=repr)


@ANSWERS
def test_repair_asks(typed: str, code: int, tmp_path: Path) -> None:
    """The command repairs after a yes, but not after a no, an empty answer or the end of the input. Ctrl-C interrupts it."""
    path = corpus.load("damage-4.3.0-two-flips").copy(tmp_path / "log", "before")
    seen = at_terminal("log", "repair", str(path), typed=typed, code=code)
    assert "rewrite-log" in seen
    assert seen.count("Do 6 steps? [y/N]: ") == 1
    assert ("6 steps done; journal: " in seen) is (code == 1)
    assert (tmp_path / "log.kops-journal").exists() is (code == 1)
    assert "[y/N]" not in at_terminal("log", "repair", "-n", str(path), code=0 if code == 1 else 4)


@ANSWERS
def test_index_rebuild_asks(typed: str, code: int, tmp_path: Path) -> None:
    path = corpus.load("damage-4.3.0-none").copy(tmp_path / "log", "before")
    index = path / "payments-none-0" / "00000000000000000021.index"
    good = index.read_bytes()
    index.unlink()
    seen = at_terminal("log", "index", "rebuild", str(path), typed=typed, code=code)
    assert seen.count("Write 1 index? [y/N]: ") == 1
    assert index.exists() is (code == 1)
    if code == 1:
        assert index.read_bytes() == good
