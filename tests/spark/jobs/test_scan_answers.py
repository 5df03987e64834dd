"""`--state DIR` of all jobs but verify: the answers are the same, and only changed parts are read."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from kops.errors import UsageError
from kops.files.any_files import AnyFiles
from kops.spark.kept import Damaged
from kops.spark.remembered import State, Unit
from tests.spark.scan_commands import Commands, Ran
from tests.support import corpus

OLD_NS = 1_700_000_000_000_000_000


def make_old(folder: Path) -> None:
    """Make files old. Files that were just written are read again."""
    for path in folder.glob("**/*"):
        os.utime(path, ns=(OLD_NS, OLD_NS))


def counts(ran: Ran) -> tuple[int, int, int]:
    """Return the numbers that a scan reports: units known, units read, bytes read."""
    found = re.search(r"([\d,]+) parts? unchanged since an earlier scan, ([\d,]+) read \(([\d,]+) bytes\)", ran.err)
    assert found is not None, ran.err
    known, read, size = (int(each.replace(",", "")) for each in found.groups())
    return known, read, size


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Provide a broker's directory with damage in one partition."""
    folder = corpus.load("cluster-4.3.0").copy(tmp_path / "n1", "nodes/n1")
    log = folder / "orders-epochs-0" / "00000000000000000000.log"
    content = bytearray(log.read_bytes())
    content[1900] ^= 1
    log.write_bytes(bytes(content))
    make_old(folder)
    return folder


QUESTIONS = {
    "stats": ("--deep", "--task-bytes", "400"),
    "timeline": ("--every", "1s", "--task-bytes", "400"),
    "grep": ("--key", "^key-", "--task-bytes", "400"),
    "producers": (),
    "txns": ("--empty",),
    "offsets": (),
    "diff": ("--replicas",),
    "keys": ("--top", "0"),
}
OTHER = corpus.load("cluster-4.3.0").root / "nodes" / "n2"


@pytest.mark.slow
@pytest.mark.parametrize("name", list(QUESTIONS))
def test_a_second_scan_reads_what_changed(commands: Commands, data: Path, tmp_path: Path, name: str) -> None:
    words = ("scan", name, "--format", "jsonl", *QUESTIONS[name])
    state = ("--state", tmp_path / "state")
    paths = (data, OTHER) if name in ("offsets", "diff") else (data,)
    plain = commands(*words, *paths)
    first = commands(*words, *state, *paths)
    assert (first.lines, first.code) == (plain.lines, plain.code)
    known, read, size = counts(first)
    assert known == 0 and read > 3 and size > 1000
    second = commands(*words, *state, *paths)
    assert (second.lines, second.code) == (plain.lines, plain.code)
    assert counts(second) == (read, 0, 0)
    if name not in ("stats", "txns", "offsets", "diff"):
        return  # in the others the units are the same: a part of a segment, or a whole partition
    log = data / "orders-epochs-0" / "00000000000000000000.log"
    with log.open("ab") as file:
        file.write(log.read_bytes()[:200])
    os.utime(log, ns=(OLD_NS, OLD_NS))
    third = commands(*words, *state, *paths)
    plain = commands(*words, *paths)
    assert (third.lines, third.code) == (plain.lines, plain.code)
    changed = [path / "orders-epochs-0" for path in paths]
    assert 0 < counts(third)[2] <= 2 * sum(each.stat().st_size for path in changed for each in path.glob("*.log"))
    assert counts(third)[0] > 0
    if name == "stats":
        files = sorted((tmp_path / "state").glob("**/*.kops-state"))
        for number, path in enumerate(files):
            path.write_bytes(b"something else" if number % 2 else path.read_bytes()[:-1])
        fourth = commands(*words, *state, data)
        assert (fourth.lines, fourth.code) == (plain.lines, plain.code)
        assert re.search(r"warning: .*\.kops-state and [0-9]+ others: damaged, or not from kops scan; the files", fourth.err)
        assert counts(fourth)[0] == 0
        assert counts(commands(*words, *state, data))[1] == 0


def test_an_answer_holds_for_a_question_and_the_state_of_files(tmp_path: Path) -> None:
    path = tmp_path / "log" / "file"
    path.parent.mkdir()
    path.write_bytes(b"abc")
    make_old(path.parent)
    state = State(str(tmp_path / "state"))
    unit = Unit(("file", 0, 3), (str(path),), 3)
    asked: list[int] = []

    def read() -> list[int]:
        asked.append(1)
        return [len(asked)]

    answers = state.answers("stats", ["a"], since=10)
    assert [answers.of(unit, read), answers.of(unit, read)] == [[1], [1]]
    assert state.answers("stats", ["a"], since=11).of(unit, read) == [1]
    assert state.answers("stats", ["a"], since=9).of(unit, read) == [2]
    assert state.answers("stats", ["b"], since=10).of(unit, read) == [3]
    assert state.answers("timeline", ["a"], since=10).of(unit, read) == [4]
    assert answers.of(Unit(("file", 0, 2), unit.files, 2), read) == [5]
    path.write_bytes(b"abd")
    make_old(path.parent)
    assert not answers.has(unit, AnyFiles()), "the time of change is another one"
    assert answers.of(unit, read) == [6]
    path.write_bytes(b"new")
    assert [answers.of(unit, read), answers.of(unit, read)] == [[7], [8]], "may change again within the same time"


def test_files_that_are_not_answers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    state = State(str(tmp_path / "state"))
    answers = state.answers("stats", [])
    unit = Unit(("file",), (str(path),), 3)
    answers.of(unit, lambda: {"a": 1})
    kept = Path(answers.path(unit))
    whole = kept.read_bytes()
    for content in (b"", b"something", b"{}\n", whole[:-1], whole + b"x", whole.replace(b"v1", b"v2", 1)):
        kept.write_bytes(content)
        with pytest.raises(Damaged):
            answers.has(unit, AnyFiles())
        assert state.known(answers, [unit]) == [False]
        assert "damaged, or not from kops scan" in state.warning
        assert answers.of(unit, lambda: {"b": 2}) == {"b": 2}
        assert answers.has(unit, AnyFiles())
    with pytest.raises(UsageError, match="is inside"):
        State(str(tmp_path / "state"), paths=[str(tmp_path)])


def test_answers_that_nobody_uses_are_removed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"abc")
    os.utime(path, ns=(OLD_NS, OLD_NS))
    state = State(str(tmp_path / "state"))
    answers = state.answers("stats", [])
    unit = Unit(("file",), (str(path),), 3)
    answers.of(unit, lambda: 1)
    os.utime(answers.path(unit), (1, 1))
    assert answers.has(unit, AnyFiles()), "which says that it is used"
    state.answers("stats", ["another question"])
    assert os.path.exists(answers.path(unit))
    os.utime(answers.path(unit), (1, 1))
    state.answers("timeline", [])
    assert os.path.exists(answers.path(unit))
    state.answers("stats", ["another question"])
    assert not os.path.exists(answers.path(unit))
