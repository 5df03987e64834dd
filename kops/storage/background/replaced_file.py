"""A file that several threads replace as a whole. Older contents never overwrite newer ones."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import Files


class ReplacedFile:
    """One file. Only one thread may call `next`. Any thread may call the function that `next` returns."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._lock = Lock()
        self._last_given = self._last_written = 0

    def next(self, data: bytes) -> Callable[[], None]:
        """Return a function that replaces the file with `data`. It waits while another thread writes. It does nothing if newer contents
        were written already.

        The function raises OSError.
        """
        self._last_given = number = self._last_given + 1

        def write() -> None:
            with self._lock:
                if number > self._last_written:
                    self._files.write_atomic(self.path, data)
                    self._last_written = number

        return write
