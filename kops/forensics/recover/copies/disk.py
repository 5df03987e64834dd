"""Files for `recover` on a disk with bad sectors. A read that fails with EIO loses the unreadable bytes, not the whole window.

A reader asks for windows of 1 MiB, and the kernel fails a whole window for one bad sector. This module reads such a window again in pieces,
down to a page, the least that the kernel reads. Pieces that still fail are read as zeros, which are not a batch. They are recorded as
unreadable, so no place is tried twice. A failed read may take a disk many seconds, so there should be few. After `_PATIENCE` failures in a
row the search continues in growing steps, and finds the edges of the bad stretch by halving. It may miss readable islands in a long one. In
a file with thousands of bad places the smallest piece grows, too.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right, insort
from typing import TYPE_CHECKING, Final

from kops.files import File
from kops.files.read_only import ReadOnlyFile
from kops.forensics.plans.plan import PlannedFiles

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.files import Files, Mode

__all__ = ["PatientFile", "PatientFiles"]

_PAGE: Final = 4096
_PATIENCE: Final = 16
_FIRST_STEP: Final = 64 << 10
_LARGEST_STEP: Final = 1 << 20
_FAILURES_A_SIZE: Final = 1024


class PatientFiles(PlannedFiles):
    """`base`, for reading only. When `sealed`, a place that is not known to be unreadable fails as usual, so bytes that were found intact
    are never read as zeros."""

    def __init__(self, base: Files) -> None:
        super().__init__(base)
        self.sealed = False
        self.failed_in_a_row = 0
        self._gone: dict[str, Gone] = {}

    def open(self, path: str, mode: Mode = "r") -> File:
        return PatientFile(self, super().open(path, mode), self._gone.setdefault(path, Gone()))

    def unreadable(self, path: str, start: int, end: int) -> list[tuple[int, int]]:
        """The unreadable ranges that touch these bytes, in order. `end` is exclusive."""
        gone = self._gone.get(path)
        return [] if gone is None else [(low, high) for low, high in gone.ranges if low < end and high > start]

    def remember(self, path: str, ranges: Iterable[tuple[int, int]]) -> None:
        """Take these bytes for unreadable: another process has tried them."""
        gone = self._gone.setdefault(path, Gone())
        for low, high in ranges:
            gone.add(low, high)


class Gone:
    """The unreadable ranges of one file, sorted and apart from each other."""

    def __init__(self) -> None:
        self.ranges: list[tuple[int, int]] = []
        self.failures = 0

    def add(self, start: int, end: int) -> None:
        """Add a range; neighbours become one."""
        touching = [each for each in self.ranges if each[0] <= end and each[1] >= start]
        self.ranges = [each for each in self.ranges if each not in touching]
        insort(self.ranges, (min([start, *(low for low, _ in touching)]), max([end, *(high for _, high in touching)])))

    def around(self, position: int) -> tuple[int, int | None]:
        """The end of the range in which `position` lies, or `position`; and where the next range begins."""
        index = bisect_right(self.ranges, position, key=lambda each: each[0])
        following = self.ranges[index][0] if index < len(self.ranges) else None
        return (max(self.ranges[index - 1][1], position) if index else position), following

    @property
    def least(self) -> int:
        """The smallest piece that is tried."""
        return _PAGE << min(self.failures // _FAILURES_A_SIZE, 8)


class PatientFile(ReadOnlyFile):  # without a descriptor, which would bypass the zeros
    """One file of `PatientFiles`."""

    __slots__ = ("_base", "_files", "_gone", "path")

    def __init__(self, files: PatientFiles, base: File, gone: Gone) -> None:
        self._files = files
        self._base = base
        self._gone = gone
        self.path = base.path

    def size(self) -> int:
        return self._base.size()

    def read(self, position: int, size: int) -> bytes:
        reach = size
        if not self._gone.ranges:
            data = self._try(position, size)
            if data is not None:
                return data
            reach = size // 2 // _PAGE * _PAGE
        return self._in_pieces(position, min(position + size, self.size()), reach)

    def close(self) -> None:
        self._base.close()

    def _try(self, position: int, size: int) -> bytes | None:
        """Return these bytes, or None if they cannot be read."""
        try:
            data = self._base.read(position, size)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            self._gone.failures += 1
            self._files.failed_in_a_row += 1
            return None
        self._files.failed_in_a_row = 0
        return data

    def _in_pieces(self, position: int, end: int, reach: int) -> bytes:
        """Return the bytes as far as they can be read, and zeros for the rest. `reach` is the size of the first piece."""
        parts: list[bytes] = []
        while position < end:
            gone_to, following = self._gone.around(position)
            if gone_to > position:
                parts.append(bytes(min(gone_to, end) - position))
                position = min(gone_to, end)
                continue
            least = self._gone.least
            reach = max(reach, least)
            stop = min(position - position % least + reach, end, end if following is None else following)
            data = self._try(position, stop - position)
            if data is not None:
                parts.append(data)
                if len(data) < stop - position:
                    break  # the file became shorter
                position = stop
                reach *= 2
            elif stop > position - position % least + least and (self._files.sealed or self._files.failed_in_a_row < _PATIENCE):
                reach = (stop - position) // 2 // least * least
            elif self._files.sealed:
                raise OSError(errno.EIO, os.strerror(errno.EIO), self.path)
            elif self._files.failed_in_a_row < _PATIENCE:
                self._gone.add(position, self._behind(position, least))
            else:
                self._pass_over(position)
                reach = least
        return b"".join(parts)

    def _behind(self, position: int, least: int) -> int:
        """The end of the piece in which `position` lies."""
        return min(position - position % least + least, max(self.size(), position + 1))

    def _pass_over(self, start: int) -> None:
        """Find how far the file is unreadable from `start` on, with few reads: go to the next readable piece in growing steps, and back
        from it by halving."""
        least = self._gone.least
        size = self.size()
        bad, good, step = start, start, _FIRST_STEP
        while self._try(good, self._behind(good, least) - good) is None:
            bad = self._behind(good, least)
            if bad >= size:
                self._gone.add(start, size)
                return
            # The last piece is always tried.
            good = max(min(bad + step, size - 1) // least * least, bad)
            step = min(step * 2, _LARGEST_STEP)
        while good - bad >= least:
            middle = (bad + good) // 2 // least * least
            if self._try(middle, self._behind(middle, least) - middle) is None:
                bad = self._behind(middle, least)
            else:
                good = middle
        if good > start:
            self._gone.add(start, good)
