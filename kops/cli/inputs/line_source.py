"""Reads lines of a file, a pipe or a terminal as they come, without blocking other work."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.client.network import NetworkClient

_READ_SIZE: Final = 256 * 1024


class LineSource:
    """Lines, without line breaks, of a path; `-` is stdin. `network` waits for the input together with its connections if it can; a plain
    file can always be read. Raises UsageError if there is no stdin, OSError."""

    def __init__(self, path: str, network: NetworkClient) -> None:
        if path == "-" and sys.stdin is None:
            raise UsageError("standard input is closed: name a file")
        self._fd = sys.stdin.fileno() if path == "-" else os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._owns = path != "-"
        self._network = network
        self._is_readable = False
        self._left = b""
        self.is_over = False
        self._is_watched = False
        self._can_wait = True
        self._watch()

    def _watch(self) -> None:
        try:
            self._network.watch(self._fd, self._mark)
            self._is_watched = True
        except PermissionError:
            self._can_wait = False

    def _mark(self) -> None:
        # Unregister the input until it is taken. Otherwise it would end every wait for the network.
        self._is_readable = True
        self._unwatch()

    @property
    def is_readable(self) -> bool:
        """Whether `take` has something to return, or the input has ended."""
        return not self.is_over and (self._is_readable or not self._can_wait)

    def take(self) -> Iterator[bytes]:
        """The lines of one read; at the end also a last one without a line break."""
        self._is_readable = False
        data = os.read(self._fd, _READ_SIZE)
        if data and self._can_wait:
            self._watch()
        if not data:
            self.is_over = True
            if self._left:
                yield self._left.removesuffix(b"\r")
            return
        *lines, self._left = (self._left + data).split(b"\n")
        for line in lines:
            yield line.removesuffix(b"\r")

    def close(self) -> None:
        """Stop reading."""
        self._unwatch()
        if self._owns:
            os.close(self._fd)
            self._owns = False

    def _unwatch(self) -> None:
        if self._is_watched:
            self._is_watched = False
            self._network.unwatch(self._fd)
