"""Files for planning: what one pass over a log has checked, the next one does not check again.

A plan reads a damaged log several times: to find the damage, to compare it with other replicas, to list its batches, and to verify the
result. A file that has changed since (by its size or its time) is checked anew. The headers of the directories under repair are kept as
far as there is room, so that a small log is read once.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable
from typing import Final

from kops.files import File, Files, Mode
from kops.files.forwarding import ForwardingFile
from kops.forensics.plans.plan import PlannedFiles
from kops.records.scanning.checked import Checked
from kops.records.scanning.columns import Columns

__all__ = ["MOST_HEADERS", "CheckedFile", "CheckedFiles"]

MOST_HEADERS: Final = 1 << 16
"""A header takes half a KiB of memory."""


class CheckedFile(ForwardingFile):
    """One file, and what is known of its batches."""

    __slots__ = ("checked",)

    def __init__(self, base: File, checked: Checked[Columns]) -> None:
        super().__init__(base)
        self.checked = checked


class CheckedFiles(PlannedFiles):
    """`base`, for reading only. All files of one path share what is known."""

    def __init__(self, base: Files) -> None:
        super().__init__(base)
        self._known: dict[str, tuple[tuple[int, int], Checked[Columns]]] = {}
        self._rooms: dict[str, _Room] = {}
        self._shelf = _Shelf()

    def keep(self, directories: Iterable[str]) -> None:
        """Keep the headers of the logs in these directories."""
        self._rooms = {self.absolute(directory): _Room(self._shelf) for directory in directories}

    def open(self, path: str, mode: Mode = "r") -> File:
        file = super().open(path, mode)
        if not path.endswith(".log"):
            return file
        status = self.stat(path)
        seen = (status.size, status.mtime_ms)
        name = self.absolute(path)
        known = self._known.get(name)
        if known is None or known[0] != seen:
            room = self._rooms.get(posixpath.dirname(name))
            known = self._known[name] = (seen, room.memory() if room is not None else Checked())
        return CheckedFile(file, known[1])


class _Shelf:
    """The room for headers, and who has some of it: the number of headers of each."""

    def __init__(self) -> None:
        self.left = MOST_HEADERS
        self.taken: dict[_Room, int] = {}

    def take(self, room: _Room, count: int) -> bool:
        """Take space for more headers, from other directories if there is none left. Returns whether there is enough."""
        own = self.taken.get(room, 0)
        if own + count > MOST_HEADERS:
            return False
        if count > self.left:
            for other in self.taken:
                if other is not room:
                    other.clear()
            self.taken, self.left = {room: own}, MOST_HEADERS - own
        self.taken[room] = own + count
        self.left -= count
        return True


class _Room:
    """The headers of one directory."""

    def __init__(self, shelf: _Shelf) -> None:
        self._shelf = shelf
        self._known: list[Checked[Columns]] = []

    def memory(self) -> Checked[Columns]:
        """What is known of one more file."""
        self._known.append(Checked(lambda count: self._shelf.take(self, count)))
        return self._known[-1]

    def clear(self) -> None:
        """Forget the headers."""
        for known in self._known:
            known.windows.clear()
