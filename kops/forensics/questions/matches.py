"""The search of `kops log grep` over all logs, in several processes.

A process searches a part of a segment. If it finds more than a few MiB, it stops, and the rest of the part is searched where the records
are needed. So memory is bounded, also if every record matches: then printing takes longer than searching.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kops.files import Files
from kops.forensics.coordinators.records import Lost
from kops.forensics.inventory.replicas import Replica
from kops.forensics.questions.outcomes import Outcomes, outcomes_of
from kops.forensics.questions.reading import Unread, answers, by_replica, jobs_that_pay
from kops.forensics.questions.search import Search, row_of, search, segments_to_search
from kops.forensics.verify.parts import Part, part_items
from kops.records import Batch, Damage

Match = dict[str, Any] | int | Lost | Unread
"""The row of a record (see `row_of`), or how many records follow each other if they are only counted; damage; a file that can't be read."""
Limit = Callable[[Iterable[Batch | Damage]], Iterable[Batch | Damage]]
ENOUGH: Final = 4 << 20
_ROW: Final = 400


@dataclass(slots=True)
class _Found:
    """What was found in a part, and the rest of the part, which was not searched."""

    matches: list[Match] = field(default_factory=list)
    rest: Part | None = None


class Matches:
    """The matches in some replicas. `jobs` is the number of processes (see `answers`). With `counts`, records are only counted."""

    def __init__(self, files: Files, replicas: Sequence[Replica], wanted: Search, *, counts: bool = False, jobs: int | None = None) -> None:
        self._files = files
        self._replicas = replicas
        self._wanted = wanted
        self._counts = counts
        self._jobs = jobs_that_pay(jobs, sum(each.size for each in replicas))
        self._outcomes: dict[int, Outcomes] = {}

    def by_replica(self) -> Iterator[Iterator[Match]]:
        """Yield the matches of each replica, in order, one replica after the other."""
        # One process gives each record as soon as it is found.
        read: Callable[[Part], _Found] = self._some if self._jobs > 1 else lambda part: _Found([], part)
        found = answers(
            self._files, self._replicas, read, jobs=self._jobs, segments=lambda replica: segments_to_search(replica, self._wanted)
        )
        for parts in by_replica(found, len(self._replicas)):
            yield self._matches(parts)

    def _matches(self, parts: Iterable[_Found | Unread]) -> Iterator[Match]:
        failed = ""
        for match in self._of_parts(parts):
            if not isinstance(match, Unread):
                yield match
            elif match.file != failed:
                failed = match.file
                yield match

    def _of_parts(self, parts: Iterable[_Found | Unread]) -> Iterator[Match]:
        for each in parts:
            if isinstance(each, Unread):
                yield each
                continue
            yield from each.matches
            if each.rest is not None:
                yield from self._search(each.rest)

    def _some(self, part: Part) -> _Found:
        """Search a part until enough is found."""
        found = _Found()
        size = 0

        def until_enough(items: Iterable[Batch | Damage]) -> Iterator[Batch | Damage]:
            for item in items:
                if size >= ENOUGH and isinstance(item, Batch):
                    found.rest = part._replace(start=item.position)
                    return
                yield item

        for match in self._search(part, until_enough):
            if isinstance(match, int) and found.matches and isinstance(found.matches[-1], int):
                found.matches[-1] += match
                continue
            found.matches.append(match)
            size += _size_of(match)
        return found

    def _search(self, part: Part, limit: Limit | None = None) -> Iterator[Match]:
        """Yield the matches of a part. An error of the disk ends it."""
        replica = self._replicas[part.number]
        path = replica.as_given(part.path)
        try:
            if self._wanted.outcomes and part.number not in self._outcomes:
                self._outcomes = {part.number: outcomes_of(self._files, replica)}
            with self._files.open(part.path) as file:
                items: Iterable[Batch | Damage] = part_items(file, part)
                if limit is not None:
                    items = limit(items)
                for each in search(items, self._wanted, path, self._outcomes.get(part.number)):
                    yield each if isinstance(each, Lost) else 1 if self._counts else row_of(replica, path, each)
        except OSError as error:
            yield Unread(path, error.strerror or str(error))


def _size_of(match: Match) -> int:
    """About the bytes of memory that a match takes."""
    if not isinstance(match, dict):
        return _ROW
    values = len(match["key"] or b"") + 2 * len(match["value"] or b"")  # It may be decoded.
    return _ROW + values + sum(_ROW + len(value or b"") for _, value in match["headers"])
