"""Findings: the contract's ten keys, a complete registry, a deterministic order."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

import kops.forensics
from kops.cli.running.tree import COMMANDS
from kops.errors import UsageError
from kops.forensics.findings.codes import CODES
from kops.forensics.findings.explanations import EXPLANATIONS
from kops.forensics.findings.finding import SEVERITIES, Finding, finding, from_json, has_problems, sort_findings
from kops.forensics.verify.facts.producers import Seen, sequence_break
from kops.forensics.verify.jobs import choose
from kops.forensics.verify.partition import SegmentTask
from kops.forensics.verify.run import verify

SOURCES = sorted(Path(next(iter(kops.forensics.__path__))).rglob("*.py"))


def test_a_finding_has_the_ten_keys() -> None:
    """They are in the order of the contract."""
    keys = ["severity", "code", "file", "position", "length", "base_offset", "last_offset", "records", "detail", "fix"]
    assert list(finding("torn-tail", "a.log").to_json()) == keys
    assert [field.name for field in fields(Finding)] == keys


def test_json_there_and_back() -> None:
    """A finding survives a round trip through JSON."""
    found = finding("segment-gap", "a.log", "words", base_offset=3, last_offset=9, records=7, severity="info", fix="")
    assert from_json(found.to_json()) == found


def test_texts_are_sentences() -> None:
    """The manual page consists of these texts."""
    for code, text in CODES.items():
        assert re.fullmatch(r"[a-z]+(-[a-z]+)+", code) and text.code == code
        assert text.severity in SEVERITIES
        begins_with_a_file_name = re.match(r"[a-z]+[.-][a-z-]+ ", text.meaning) is not None
        assert text.meaning.endswith(".") and (text.meaning[0].isupper() or begins_with_a_file_name), code
        assert text.consequence.endswith("."), code
        assert bool(text.fix) or text.severity != "error", code


def test_every_code_is_used() -> None:
    """A code that is in the registry but never emitted would be a false promise."""
    sources = "".join(path.read_text() for path in SOURCES if path.name not in ("codes.py", "explanations.py", "replica_codes.py"))
    composed = {"leftover-cleaned", "leftover-swap", "leftover-deleted"}
    assert [code for code in CODES if f'"{code}"' not in sources and code not in composed] == []


def test_every_code_is_explained() -> None:
    """The explanations are in the order of the registry, with an example and a cause."""
    assert list(EXPLANATIONS) == list(CODES)
    for code, more in EXPLANATIONS.items():
        assert more.code == code
        assert more.place and more.detail, code
        assert more.cause.endswith(".") and more.cause[0].isupper(), code


def test_every_code_that_the_source_names_is_in_the_catalogue() -> None:
    """The test takes the first argument of each `finding(...)` that is a literal."""
    named = {name for path in SOURCES for name in re.findall(r'\bfinding\(\s*"([a-z-]*[a-z])"', path.read_text())}
    assert len(named) > 50
    assert named <= set(EXPLANATIONS)


def test_an_unknown_code_is_a_bug() -> None:
    """An unknown code has no text."""
    with pytest.raises(KeyError):
        finding("no-such-thing", "a.log")


def test_infos_are_no_problems() -> None:
    """Only errors and warnings are problems."""
    assert not has_problems([finding("directory-deleted", "a")])
    assert has_problems([finding("directory-deleted", "a"), finding("index-missing", "b")])


def test_order() -> None:
    """Findings are sorted by file, position, offset and code."""
    ordered = [
        finding("segment-gap", "a", base_offset=1),
        finding("torn-tail", "a", position=0),
        finding("torn-tail", "a", position=7),
        finding("index-missing", "b"),
    ]
    assert sort_findings(reversed(ordered)) == ordered


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0, 0, 4), (0, 5, 9), None),
        ((0, 0, 4), (0, 6, 9), "gap"),
        ((0, 0, 4), (0, 0, 4), "duplicate"),
        ((0, 0, 4), (0, 4, 4), "duplicate"),
        ((0, 5, 2**31 - 1), (0, 0, 3), None),
        ((0, 0, 4), (1, 0, 4), None),
        ((0, 0, 4), (1, 5, 9), "gap"),
        ((2, 0, 4), (1, 5, 9), "epoch-back"),
        ((3, -1, -1), (3, 0, 2), None),
        ((3, -1, -1), (3, 5, 9), "gap"),
        ((0, 0, 4), (0, -1, -1), None),
    ],
)
def test_sequences(before: tuple[int, int, int], after: tuple[int, int, int], expected: str | None) -> None:
    """Two batches of a producer follow each other or not, depending on their epochs and sequence numbers."""
    one = Seen(before[0], before[1], before[2], 0, 4, 0, 0)
    other = Seen(after[0], after[1], after[2], 5, 9, 100, 0)
    assert sequence_break(one, other) == expected


@pytest.mark.parametrize("sample", ["0/3", "4/3", "1/0", "0%", "101%", "half", "1/", "%", "-1/3", ""])
def test_bad_samples(sample: str) -> None:
    """The error names the forms that are allowed."""
    with pytest.raises(UsageError, match="n/t"):
        choose([], sample)


def test_percent_samples_grow() -> None:
    """A larger sample contains all of a smaller one."""
    tasks = [SegmentTask(f"/data/t-{number % 7}/{number:020d}.log", number, 1) for number in range(500)]
    shares = [{task.path for task in choose(tasks, share)[0]} for share in ("10%", "37.5%", "100%")]
    assert shares[0] < shares[1] < shares[2] == {task.path for task in tasks}
    assert 20 < len(shares[0]) < 90


def test_unknown_level(tmp_path: Path) -> None:
    """The error names the levels that exist."""
    with pytest.raises(UsageError, match="quick, crc, deep, full"):
        verify([tmp_path], "deeper")


def test_remedies_name_commands_that_there_are() -> None:
    """Each command that a remedy names exists."""
    for text in CODES.values():
        for named in re.findall(r"kops ((?:[a-z-]+ ?)+)", text.fix):
            assert any(named.startswith(" ".join(entry.path)) for entry in COMMANDS), text.fix
