"""Files at paths and URLs alike, for reading: each path goes to the files of the operating system, or to those behind URLs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kops.files.api import File, Files, FileStat, Mode
from kops.files.os_files import OsFiles
from kops.files.read_only import ReadOnlyFiles
from kops.files.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.files.objects import ObjectFiles


class AnyFiles(ReadOnlyFiles):
    """`ahead`: list the directories below a URL's directory several at a time, because they will all be asked for. `growing`: objects may
    have changed since they were listed."""

    def __init__(self, *, ahead: bool = False, growing: bool = False) -> None:
        self._local = OsFiles(read_only=True)
        self._is_ahead = ahead
        self._is_growing = growing
        self._objects: ObjectFiles | None = None

    @property
    def objects(self) -> ObjectFiles:
        """The files behind URLs. They need pyarrow."""
        if self._objects is None:
            from kops.files.objects import ObjectFiles

            self._objects = ObjectFiles(ahead=self._is_ahead, growing=self._is_growing)
        return self._objects

    def expect(self, known: Mapping[str, tuple[int, int]]) -> None:
        """The sizes and times (ms) of files when the work was planned. An object behind a URL that has others can't be opened."""
        urls = {path: seen for path, seen in known.items() if is_url(path)}
        if urls:
            self.objects.expect(urls)

    def forget(self) -> None:
        """Forget the listings of objects, to see what has changed."""
        if self._objects is not None:
            self._objects.forget()

    def _of(self, path: str) -> Files:
        return self.objects if is_url(path) else self._local

    def absolute(self, path: str) -> str:
        return self._of(path).absolute(path)

    def open(self, path: str, mode: Mode = "r") -> File:
        return self._of(path).open(path, mode)

    def exists(self, path: str) -> bool:
        return self._of(path).exists(path)

    def stat(self, path: str) -> FileStat:
        return self._of(path).stat(path)

    def list(self, path: str) -> list[str]:
        return self._of(path).list(path)
