"""A file that is replaced as a whole, from several threads, so that older contents never take the place of newer ones."""

from __future__ import annotations

from threading import Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files import Files


class ReplacedFile:
    """One file. `next` is for one thread; what it returns may be called in any."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._lock = Lock()
        self._last_given = self._last_written = 0

    def next(self, data: bytes) -> Callable[[], None]:
        """The function that replaces the file with `data`; it waits for a writer that is at it, and does nothing behind a newer one.

        It raises OSError.
        """
        self._last_given = number = self._last_given + 1

        def write() -> None:
            with self._lock:
                if number > self._last_written:
                    self._files.write_atomic(self.path, data)
                    self._last_written = number

        return write
