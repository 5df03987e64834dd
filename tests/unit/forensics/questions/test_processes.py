"""`--jobs`: several processes that read parts of segments give the same answers, in the same order, as one that reads them whole."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Any

import pytest

from kops.files import Mode, OsFiles
from kops.files.os_files import OsFile
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.questions import matches as matches_module
from kops.forensics.questions import reading
from kops.forensics.questions.compaction import CompactionReport
from kops.forensics.questions.matches import Match, Matches
from kops.forensics.questions.reading import Found, Unread, answers, by_replica, find_logs
from kops.forensics.questions.search import Search
from kops.forensics.questions.stats import collect, row_of
from kops.forensics.questions.timeline import Choice, all_events, order_of
from kops.forensics.verify.parts import Part
from tests.support import corpus

FILES = OsFiles(read_only=True)
CLUSTER = corpus.load("cluster-4.3.0").root / "nodes" / "n1"
ROOTS = [corpus.load(name).root for name in ("v2-4.3.0-transactions", "v1-0.10.2.2-codec-gzip", "damage-4.3.0-two-flips")]
SEARCHES = {
    "all": Search(),
    "value": Search(value=re.compile(b"[0-9]")),
    "offsets": Search(RecordFilter(from_offset=5, to_offset=60, control=False)),
    "committed": Search(outcomes=frozenset({"committed"})),
}


@pytest.fixture(params=[str(root) for root in [*ROOTS, CLUSTER]], ids=os.path.basename)
def found(request: pytest.FixtureRequest) -> Found:
    return find_logs([request.param], FILES)


@pytest.fixture
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide every segment with index entries, also among few processes."""
    monkeypatch.setattr(reading, "PART_BYTES", 256)
    monkeypatch.setattr(reading, "LEAST_PART_BYTES", 256)


def matches(found: Found, wanted: Search, jobs: int, *, counts: bool = False) -> list[list[Match]]:
    return [list(each) for each in Matches(FILES, found.replicas, wanted, counts=counts, jobs=jobs).by_replica()]


@pytest.mark.parametrize("name", SEARCHES)
def test_grep(found: Found, name: str, small_parts: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second limit is reached at once, so that the rest of each part is searched in this process."""
    alone = matches(found, SEARCHES[name], 1)
    counted = [sum(1 for match in own if isinstance(match, dict)) for own in alone]
    for enough in (1 << 20, 1):
        monkeypatch.setattr(matches_module, "ENOUGH", enough)
        assert matches(found, SEARCHES[name], 3) == alone
        numbers = matches(found, SEARCHES[name], 3, counts=True)
        assert [sum(match for match in own if isinstance(match, int)) for own in numbers] == counted
    assert len(alone) == len(found.replicas)


def test_timeline(found: Found, small_parts: None) -> None:
    logs = {each.directory.path for each in found.replicas}

    def events(jobs: int) -> list[Any]:
        return sorted(all_events(FILES, found.replicas, logs, Choice(), jobs=jobs), key=repr)

    assert events(3) == events(1)
    rows = [each for each in events(3) if isinstance(each, dict)]
    assert rows and sorted(rows, key=order_of)


def test_compaction(found: Found, small_parts: None) -> None:
    def rows(jobs: int) -> list[dict[str, Any]]:
        report = CompactionReport(FILES, found.replicas, {"cleanup.policy": "compact"}, 1_800_000_000_000)
        return [each.to_row() for each in report.answers(with_tombstones=True, jobs=jobs)]

    assert rows(3) == rows(1)


def test_stats(found: Found, small_parts: None) -> None:
    def rows(jobs: int) -> list[dict[str, Any]]:
        return [row_of(replica, one) for replica, one, _ in collect(FILES, found.replicas, 1_800_000_000_000, deep=True, jobs=jobs)]

    assert rows(3) == rows(1)


class OneFails(OsFiles):
    """A disk on which the segments of one directory cannot be read."""

    def __init__(self, directory: str) -> None:
        super().__init__(read_only=True)
        self.directory = directory

    def open(self, path: Any, mode: Mode = "r") -> OsFile:
        if os.path.dirname(os.fspath(path)) == self.directory and os.fspath(path).endswith(".log"):
            raise OSError(5, "Input/output error", os.fspath(path))
        return super().open(path, mode)


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_file_that_fails_loses_no_other(jobs: int, small_parts: None) -> None:
    found = find_logs([str(CLUSTER)], FILES)
    place = next(number for number, each in enumerate(found.replicas) if each.size and each.directory.topic != "__cluster_metadata")
    files = OneFails(found.replicas[place].directory.path)
    whole = matches(found, Search(), 1)
    own = [list(each) for each in Matches(files, found.replicas, Search(), jobs=jobs).by_replica()]
    assert own[:place] + own[place + 1 :] == whole[:place] + whole[place + 1 :]
    assert own[place] and all(isinstance(each, Unread) and each.reason == "Input/output error" for each in own[place])
    events = list(all_events(files, found.replicas, {each.directory.path for each in found.replicas}, Choice(), jobs=jobs))
    assert [each for each in events if isinstance(each, Unread)] == own[place]
    assert {each["topic"] for each in events if isinstance(each, dict)} >= {each.directory.topic for each in found.replicas[:place]}


def children() -> bool:
    """Return whether this process has children that were not waited for."""
    try:
        os.waitpid(-1, os.WNOHANG)
    except ChildProcessError:
        return False
    return True


@pytest.mark.parametrize("error", [KeyboardInterrupt, BrokenPipeError])
def test_an_interruption_ends_all_processes(error: type[BaseException], small_parts: None) -> None:
    found = find_logs([str(CLUSTER)], FILES)
    had_children = children()

    def interrupted() -> Iterator[Match]:
        for own in Matches(FILES, found.replicas, Search(), jobs=2).by_replica():
            for match in own:
                yield match
                raise error

    with pytest.raises(error):
        list(interrupted())
    assert children() == had_children


def test_few_parts_are_read_ahead(small_parts: None) -> None:
    """What is read and not yet needed is bounded by the number of processes, however many parts there are."""
    found = find_logs([str(CLUSTER)], FILES)
    largest = [max(found.replicas, key=lambda each: each.size)]
    begun: list[int] = []
    places = reading._Places(1000, 4)
    for taken in range(50):
        begun += places
        assert begun == list(range(4 + taken))
        places.taken += 1
    read = answers(FILES, largest, lambda part: part, jobs=2)
    parts: list[Part | Unread] = [part for own in by_replica(read, 1) for part in own]
    assert len(parts) > 2 and parts == sorted(parts, key=lambda part: (part.path, part.start))  # type: ignore[union-attr]
