"""Files for planning: what one pass over a log has checked, the next one does not check again.

A plan reads a damaged log several times: to find the damage, to compare it with other replicas, to list its batches, and to verify the
result. A file that has changed since (by its size or its time) is checked anew.
"""

from __future__ import annotations

from kops.files import File, Files, Mode
from kops.files.forwarding import ForwardingFile
from kops.forensics.plans.plan import PlannedFiles
from kops.records.scanning.checked import Checked

__all__ = ["CheckedFile", "CheckedFiles"]


class CheckedFile(ForwardingFile):
    """One file, and what is known of its batches."""

    __slots__ = ("checked",)

    def __init__(self, base: File, checked: Checked) -> None:
        super().__init__(base)
        self.checked = checked


class CheckedFiles(PlannedFiles):
    """`base`, for reading only. All files of one path share what is known."""

    def __init__(self, base: Files) -> None:
        super().__init__(base)
        self._known: dict[str, tuple[tuple[int, int], Checked]] = {}

    def open(self, path: str, mode: Mode = "r") -> File:
        file = super().open(path, mode)
        if not path.endswith(".log"):
            return file
        status = self.stat(path)
        seen = (status.size, status.mtime_ms)
        name = self.absolute(path)
        known = self._known.get(name)
        if known is None or known[0] != seen:
            known = self._known[name] = (seen, Checked())
        return CheckedFile(file, known[1])
