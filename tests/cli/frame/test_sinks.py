"""Where data goes, and what happens if it can't be written: closed pipes, full disks, -o FILE, Ctrl-C."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import PROJECT, Ran, kops_process
from tests.support.patience import until_taken

Kops = Callable[..., Ran]
PROBE = [sys.executable, "-m", "tests.cli.probe"]


def run_shell(line: str) -> Ran:
    """Run a line of bash in which `kops` is the command line with the probes. The exit code is that of kops."""
    script = f'kops() {{ {sys.executable} -m tests.cli.probe "$@"; }}; {line}; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", script], cwd=PROJECT, capture_output=True, timeout=120, check=False)
    return Ran(done.returncode, done.stdout, done.stderr.decode())


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("kops log many 1000000 --format jsonl | head -1", 4),
        ("kops log many 1000000 --format json | head -1", 4),
        ("kops log many 1000000 --format table | head -1", 4),
        ("kops probe rows --format jsonl | true", 0),
        ("kops --help | true", 0),
        ("kops log rows --help | true", 0),
    ],
)
def test_a_reader_that_goes_away_is_no_error(line: str, code: int) -> None:
    ran = run_shell(line)
    assert (ran.code, ran.err) == (code, "")


def waiting(pipe: int) -> int:
    """Return the number of bytes that nobody has read yet."""
    return int(struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, b"\0\0\0\0"))[0])


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_ctrl_c_while_the_reader_is_slow_loses_nothing(format: str) -> None:
    with subprocess.Popen([*PROBE, "log", "many", "1000000", "--format", format], cwd=PROJECT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        # The pipe is full and stays full: the command waits in a write.
        before = -1
        while (now := waiting(process.stdout.fileno())) == 0 or now != before:
            before = now
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        until_taken(process.pid, signal.SIGINT)
        printed = process.stdout.read()
    if format == "json":
        document = json.loads(printed)
        assert document["interrupted"] is True
        found = [row["number"] for row in document["rows"] if row]
    else:
        found = [json.loads(line)["number"] for line in printed.splitlines()]
    assert len(printed) >= before
    assert found == list(range(len(found)))


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("kops log rows > /dev/full", 8),
        ("kops log many > /dev/full", 12),
        ("kops log rows -o /dev/full", 8),
        ("kops probe rows > /dev/full", 1),
        ("kops --help > /dev/full", 1),
        ("kops log rows --help > /dev/full", 8),
    ],
)
def test_a_full_disk_is_one_clear_line(line: str, code: int) -> None:
    ran = run_shell(line)
    assert ran.code == code
    assert ran.err.startswith("kops: error: ")
    assert "No space left on device" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize("line", ["kops log rows >&-", "kops --help >&-"])
def test_a_closed_stdout_is_one_clear_line(line: str) -> None:
    ran = run_shell(line)
    assert ran.code in (1, 8)
    assert ran.err == "kops: error: cannot write to standard output: it is closed\n"


def test_a_closed_stderr_changes_nothing() -> None:
    ran = run_shell("kops log words x 2>&-")
    assert (ran.code, ran.out) == (0, b"painted\n")


@pytest.mark.usefixtures("probes")
class TestFiles:
    def test_the_file_holds_what_stdout_would(self, kops: Kops, tmp_path: Path) -> None:
        printed = kops("log", "rows", "--format", "json").out
        ran = kops("log", "rows", "--format", "json", "-o", str(tmp_path / "out.json"))
        assert (ran.code, ran.out, ran.err) == (0, b"", "")
        assert (tmp_path / "out.json").read_bytes() == printed
        assert os.listdir(tmp_path) == ["out.json"]

    def test_minus_is_stdout(self, kops: Kops) -> None:
        assert kops("log", "rows", "-o", "-").out == kops("log", "rows").out

    def test_a_failing_run_leaves_no_half_file_and_keeps_the_old_one(self, kops: Kops, tmp_path: Path) -> None:
        target = tmp_path / "out.txt"
        assert kops("log", "fail", "decode", "-o", str(target)).code == 8
        assert os.listdir(tmp_path) == []
        target.write_text("old")
        assert kops("log", "fail", "bug", "-o", str(target)).code == 8
        assert os.listdir(tmp_path) == ["out.txt"]
        assert target.read_text() == "old"

    def test_an_interrupted_run_keeps_what_it_had(self, kops: Kops, tmp_path: Path) -> None:
        ran = kops("log", "fail", "interrupt", "-o", str(tmp_path / "out.txt"))
        assert ran.code == 32
        assert (tmp_path / "out.txt").read_text() == "half\n"
        assert ran.err == f"kops: interrupted; what was printed into {tmp_path / 'out.txt'} so far is intact\n"
        assert kops("probe", "fail", "interrupt").code == 130

    def test_mode_and_link_of_an_old_file_stay(self, kops: Kops, tmp_path: Path) -> None:
        target, link = tmp_path / "real", tmp_path / "link"
        target.write_text("old")
        target.chmod(0o640)
        link.symlink_to(target)
        assert kops("log", "rows", "-o", str(link)).code == 0
        assert link.is_symlink()
        assert target.stat().st_mode & 0o777 == 0o640
        assert target.read_text().startswith("NAME")

    def test_no_directory_no_file(self, kops: Kops, tmp_path: Path) -> None:
        target = tmp_path / "none" / "out"
        ran = kops("log", "rows", "-o", str(target))
        assert (ran.code, ran.err) == (8, f"kops: error: cannot write to {target}: No such file or directory\n")

    def test_an_input_is_never_the_output(self, kops: Kops, tmp_path: Path) -> None:
        source = tmp_path / "source"
        source.write_text("data")
        ran = kops("log", "words", str(source), "-o", str(source))
        assert (ran.code, ran.err) == (16, f"kops: error: -o {source} would replace the input\n")
        segment = tmp_path / "00000000000000000000.log"
        segment.write_text("data")
        assert kops("log", "rows", "-o", str(segment)).code == 16
        assert (source.read_text(), segment.read_text()) == ("data", "data")


def interrupt_when_ready(*arguments: str, by: signal.Signals = signal.SIGINT) -> Ran:
    """Run a probe that prints `ready` on stderr, then send it Ctrl-C (or another signal)."""
    with subprocess.Popen([*PROBE, *arguments], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stderr.readline() == b"ready\n"
        process.send_signal(by)
        out, err = process.communicate(timeout=60)
        return Ran(process.returncode, out, err.decode())


@pytest.mark.parametrize("text_format", ["json", "jsonl", "csv", "yaml"])
def test_ctrl_c_leaves_whole_partial_results_and_says_how_to_resume(text_format: str) -> None:
    ran = interrupt_when_ready("log", "slow", "--format", text_format)
    assert ran.code == 32
    assert ran.err == "kops: interrupted; what was printed so far is intact. To resume: kops log slow --again\n"
    numbers = [{"number": number} for number in range(3)]
    if text_format == "json":
        assert json.loads(ran.out) == {"schema": "kops.probe/v1", "rows": numbers, "interrupted": True}
    elif text_format == "jsonl":
        assert [json.loads(line)["number"] for line in ran.text.splitlines()] == [0, 1, 2]
    elif text_format == "csv":
        assert ran.text == "number\n0\n1\n2\n"
    else:
        import yaml

        assert yaml.safe_load(ran.text) == {"schema": "kops.probe/v1", "rows": numbers, "interrupted": True}


@pytest.mark.parametrize("by", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_no_signal_leaves_a_half_file(by: signal.Signals, tmp_path: Path) -> None:
    target = tmp_path / "out.json"
    ran = interrupt_when_ready("log", "slow", "--format", "json", "-o", str(target), by=by)
    assert (ran.code, ran.out) == (32, b"")
    name = "" if by == signal.SIGINT else f" by {by.name}"
    assert ran.err.startswith(f"kops: interrupted{name}; what was printed into {target} so far is intact.")
    assert os.listdir(tmp_path) == ["out.json"]
    assert json.loads(target.read_text())["interrupted"] is True


def test_under_nohup_a_hangup_is_nothing() -> None:
    command = ["nohup", *PROBE, "log", "slow", "--format", "jsonl"]
    with subprocess.Popen(command, cwd=PROJECT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"ready\n"
        process.send_signal(signal.SIGHUP)
        until_taken(process.pid, signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 32
    assert err.startswith(b"kops: interrupted by SIGTERM; ")
    assert len(out.splitlines()) == 3


def test_ctrl_c_does_not_wait_for_the_command() -> None:
    """The command would go on for ten minutes, longer than `interrupt_when_ready` waits."""
    assert interrupt_when_ready("log", "slow").code == 32


def test_words_go_to_stderr_and_quiet_and_verbose_choose_them() -> None:
    assert kops_process("log", "words", "x").err == "said\nkops: warning: warned\n"
    assert kops_process("log", "words", "x", "-q").err == "kops: warning: warned\n"
    assert kops_process("log", "words", "x", "-v").err == "said\nin detail\nkops: warning: warned\n"
    assert kops_process("log", "words", "x").out == b"painted\n"


def test_slow_output_is_handed_on_before_the_end() -> None:
    with subprocess.Popen(
        [*PROBE, "log", "slow", "--format", "jsonl"], cwd=PROJECT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["number"] == 0
        process.kill()


def test_a_file_that_can_not_grow_is_one_clear_line_and_leaves_nothing(tmp_path: Path) -> None:
    target = tmp_path / "out.jsonl"
    target.write_text("old")
    ran = run_shell(f"ulimit -f 64; kops log many --format jsonl -o {target}")
    assert (ran.code, ran.err) == (12, f"kops: error: cannot write to {target}: File too large\n")
    assert os.listdir(tmp_path) == ["out.jsonl"]
    assert target.read_text() == "old"
