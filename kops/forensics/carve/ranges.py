"""Reads an image in ranges, each by itself, and joins what was found. The result is that of one pass over the image.

What is in a range depends on what a scan knows at its beginning: whether a batch reaches into it, which fragment may continue, and more
(`kops.forensics.carve.fragments.Border`). A range is therefore read from a little before its beginning on. By then the scan is in step with
one that has read everything: it has taken some batches, or has seen that there are none. `Chain` compares what it knew at the border with
what the range before knew at its end. If they differ in anything that mattered, the range is read again from what the range before knew.

A batch belongs to the range in which it begins. Ranges end where the windows of one pass end, so that all decisions are the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from kops.errors import KopsError
from kops.forensics.carve import fragments
from kops.forensics.carve.fragments import Border, Claim, Fragment, Scan
from kops.forensics.carve.search import HEADER_VIEW, Look
from kops.forensics.carve.state import Progress
from kops.forensics.recover.copies.disk import Gone, PatientFiles

__all__ = ["Chain", "Found", "Range", "read_range", "split_image"]

_WINDOWS_BEFORE: Final = 1


@dataclass(frozen=True, slots=True)
class Range:
    """Bytes `start` to `end` of an image of `size` bytes. With `before` the scan begins with it, else with what it finds itself."""

    image: str
    size: int
    start: int
    end: int
    before: Border | None = None


@dataclass(slots=True)
class Found:
    """What is in a range. `before` and `after` is what the scan knew at its beginning and its end.

    `closed`, `last`, `nested`, `damaged` and `proved` are those of `kops.forensics.carve.fragments.Done`. If a fragment reaches the
    beginning, the first fragment continues it. `most_spent`, `asked` and `asked_compacted` are those of `Scan.cross`.
    """

    start: int
    before: Border
    after: Border
    closed: list[Fragment]
    last: Fragment | None
    nested: int
    damaged: int
    proved: list[int]
    unreadable: list[tuple[int, int]]
    most_spent: list[int]
    asked: list[tuple[int, int]]
    asked_compacted: bool
    is_given: bool

    def to_json(self) -> dict[str, Any]:
        """Return it as a document for `from_json`."""
        return {
            **asdict(replace(self, before=Border(), after=Border(), closed=[], last=None)),
            "before": _border_to_json(self.before),
            "after": _border_to_json(self.after),
            "closed": [each.to_json() for each in self.closed],
            "last": None if self.last is None else self.last.to_json(),
        }

    @classmethod
    def from_json(cls, row: dict[str, Any]) -> Found:
        """Return what `to_json` has made. Raises KeyError, TypeError or ValueError for anything else."""
        known = {
            **row,
            "before": _border_from_json(row["before"]),
            "after": _border_from_json(row["after"]),
            "closed": [Fragment.from_json(each) for each in row["closed"]],
            "last": None if row["last"] is None else Fragment.from_json(row["last"]),
            "unreadable": [(low, high) for low, high in row["unreadable"]],
            "asked": [(producer, epoch) for producer, epoch in row["asked"]],
        }
        return cls(**known)


def _border_to_json(border: Border) -> dict[str, Any]:
    last = None if border.last is None else border.last.to_json()
    return {**asdict(replace(border, last=None)), "last": last}


def _border_from_json(row: dict[str, Any]) -> Border:
    last = None if row["last"] is None else Fragment.from_json(row["last"])
    return Border(**{**row, "last": last, "claims": [Claim(**each) for each in row["claims"]]})


def split_image(image: str, size: int, target: int) -> Iterator[Range]:
    """The ranges of an image, of about `target` bytes."""
    window = fragments.WINDOW - HEADER_VIEW
    step = max(target // window, 1) * window
    for start in range(0, size, step):
        yield Range(image, size, start, min(start + step, size))


def read_range(files: PatientFiles, work: Range, look: Look) -> Found:
    """Read a range. Raises OSError, and KopsError if the image has another size than when it was divided."""
    with files.open(work.image) as file:
        if file.size() != work.size:
            raise KopsError(f"{work.image}: had {work.size:,} bytes when the scan began, has {file.size():,} now")
        before = work.before
        first = work.start if before is not None else max(work.start - _WINDOWS_BEFORE * (fragments.WINDOW - HEADER_VIEW), 0)
        scan = Scan(work.image, file, first, look=look, end=work.start)
        for _ in scan.windows():
            pass  # What is before the range belongs to the one before.
        before = before if before is not None else replace(scan.border(), spent=Border().spent)
        scan.cross(before, work.end)
        for _ in scan.windows():
            pass
        done = scan.done
        if done.position < work.end:
            raise KopsError(f"{work.image}: the file became shorter while it was read")
    return Found(
        work.start,
        before,
        replace(scan.border(), last=None),
        done.closed,
        done.last,
        done.nested,
        done.damaged,
        done.proved,
        files.unreadable(work.image, 0, work.size),
        scan.most_spent,
        sorted(scan.asked),
        scan.asked_compacted,
        work.before is not None,
    )


@dataclass(slots=True)
class Chain:
    """Joins the ranges of one image from the first one on, as far as they fit."""

    ranges: Sequence[Range]
    found: list[Fragment] = field(default_factory=list)
    nested: int = 0
    damaged: int = 0
    _proved: set[int] = field(default_factory=set)
    _gone: Gone = field(default_factory=Gone)
    _number: int = 0
    _border: Border = field(default_factory=Border)
    _last: Fragment | None = None

    def add(self, results: Sequence[Found | None]) -> int | None:
        """Join the results of all ranges as far as they fit. Returns the number of the first range that has to be read (again), None if
        there is none; `again` is then how."""
        while self._number < len(self.ranges):
            one = results[self._number]
            if one is None or not self._fits(one):
                return self._number
            self._take(one)
            self._number += 1
        return None

    def again(self) -> Range:
        """The range that did not fit, to be read from what is known before it."""
        return replace(self.ranges[self._number], before=self._known())

    def progress(self, image: str, size: int) -> Progress:
        """The state of the image after all ranges."""
        return Progress(image, size, size, self._last, self.nested, self.damaged, sorted(self._proved), list(self._gone.ranges))

    def _known(self) -> Border:
        """What one pass knows at the beginning of the next range."""
        is_open = self._last is not None and self._last.end >= self._border.position
        return replace(self._border, last=self._last if is_open else None)

    def _fits(self, one: Found) -> bool:
        known, guess = self._known(), one.before
        if one.is_given:
            return known == guess
        if (known.outer_end, known.known, known.claims) != (guess.outer_end, guess.known, guess.claims):
            return False
        if any(spent + most > fragments.CREDIT for spent, most in zip(known.spent, one.most_spent, strict=True)):
            return False
        if known.last is None or guess.last is None:
            return known.last is guess.last
        return _decides_alike(known.last, guess.last, one)

    def _take(self, one: Found) -> None:
        is_continued = one.before.last is not None
        several = [*one.closed, *([one.last] if one.last is not None else [])]
        if several and is_continued and self._last is not None:
            several[0] = self._last.joined(several[0])
        elif several and self._last is not None:
            self.found.append(self._last)
        self.found += several[: len(one.closed)]
        self._last = several[-1] if several else self._last
        self.nested += one.nested
        self.damaged += one.damaged
        self._proved.update(one.proved)
        for low, high in one.unreadable:
            self._gone.add(low, high)
        spent = one.after.spent
        if not one.is_given:
            spent = [a + b for a, b in zip(self._border.spent, spent, strict=True)]
        self._border = replace(one.after, spent=spent)


def _decides_alike(known: Fragment, guess: Fragment, one: Found) -> bool:
    """Whether the fragment that reaches the border lets the same batches follow, although the guess may lack its first batches."""
    if (known.end, known.last, known.last_epoch, known.magic) != (guess.end, guess.last, guess.last_epoch, guess.magic):
        return False
    missing = len(known.lasts) - len(guess.lasts)
    if missing < 0 or known.lasts[missing:] != guess.lasts:
        return False
    if known.compacted != guess.compacted and (guess.compacted or one.asked_compacted):
        return False
    return not {each[:2] for each in known.lasts} & set(one.asked)
