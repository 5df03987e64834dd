"""Files behind a URL, for writing: what is written stays in a local directory until it is renamed, and the rename uploads it.

A store has no rename, but an object appears as a whole, when its upload ends. So a file that is written under another name and then renamed
is never seen half. The objects of a renamed directory appear one after the other: who needs all of them looks for what is uploaded last.
Uploading the same contents twice, even at the same time, gives the same objects.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posixpath
import shutil
import tempfile
import time
from collections.abc import Callable

from kops.files.api import File, FileStat, Mode
from kops.files.objects import BLOCK, BROKEN, ObjectFiles
from kops.files.os_files import OsFiles


class UploadFiles(ObjectFiles):
    """Listings are not remembered, because they change. Call `close` at the end: it removes the local directory."""

    def __init__(self, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(sleep=sleep)
        self._local = OsFiles()
        self._folder = ""
        self._number = 0
        self._staged: dict[str, str] = {}
        self._made: set[str] = set()

    def close(self) -> None:
        """Remove what was written and not renamed."""
        folder, self._folder = self._folder, ""
        self._staged.clear()
        if folder:
            shutil.rmtree(folder, ignore_errors=True)

    def open(self, path: str, mode: Mode = "r") -> File:
        name = self.absolute(path)
        if mode == "r" and name not in self._staged:
            return super().open(path)
        if name not in self._staged:
            self._folder = self._folder or tempfile.mkdtemp(prefix="kops-upload-")
            self._number += 1
            self._staged[name] = os.path.join(self._folder, str(self._number))
        return self._local.open(self._staged[name], mode)

    def mkdir(self, path: str) -> None:
        """Remember a directory. A store has none: there are names with slashes."""
        self._made.add(self.absolute(path))

    def _below(self, path: str) -> list[str]:
        """What was written below a directory and is not uploaded."""
        return sorted(name for name in self._staged if name.startswith(f"{path}/"))

    def exists(self, path: str) -> bool:
        name = self.absolute(path)
        return name in self._staged or name in self._made or bool(self._below(name)) or super().exists(path)

    def stat(self, path: str) -> FileStat:
        name = self.absolute(path)
        if name in self._staged:
            return self._local.stat(self._staged[name])
        if name in self._made or self._below(name):
            return FileStat(0, 0, True, 0o755, False)
        return super().stat(path)

    def list(self, path: str) -> list[str]:
        name = self.absolute(path)
        names = {each[len(name) + 1 :].partition("/")[0] for each in self._below(name)}
        try:
            names.update(self._ask(name))
        except FileNotFoundError:
            if not names and name not in self._made:
                raise
        return sorted(names)

    def rename(self, source: str, target: str) -> None:
        """Upload a file, or all files of a directory."""
        name = self.absolute(source)
        if name in self._staged:
            self._upload(name, target)
            return
        below = self._below(name)
        if not below:
            raise OSError(errno.ENOTSUP, "a store can't rename what is in it", source)
        for each in below:
            self._upload(each, posixpath.join(target, each[len(name) + 1 :]))
        self._made.discard(name)

    def _upload(self, name: str, target: str) -> None:
        path = self._staged[name]
        system, inner = self.system(target)
        size = os.stat(path).st_size

        def upload() -> None:
            with open(path, "rb") as file:
                stream = system.open_output_stream(inner)
                try:
                    while data := file.read(BLOCK):
                        stream.write(data)
                except BaseException:
                    # pyarrow can't abandon an upload: what has been written would become the object.
                    with contextlib.suppress(OSError):
                        stream.close()
                        system.delete_file(inner)
                    raise
                stream.close()
            there = system.get_file_info(inner).size
            if there != size:
                raise OSError(BROKEN, f"{there} bytes arrived of {size}", target)

        self.attempt(target, upload)
        del self._staged[name]
        os.unlink(path)

    def unlink(self, path: str) -> None:
        staged = self._staged.pop(self.absolute(path), None)
        if staged is not None:
            self._local.unlink(staged)
            return
        if self.stat(path).is_dir:
            raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        system, inner = self.system(path)
        self.attempt(path, lambda: system.delete_file(inner))

    def rmdir(self, path: str) -> None:
        """Forget a directory, or remove the object that stands for one, as some tools make them."""
        self._made.discard(self.absolute(path))
        if super().exists(path):
            system, inner = self.system(path)
            self.attempt(path, lambda: system.delete_dir(inner))

    def sync_dir(self, path: str) -> None:
        """Nothing: an object that was uploaded is durable."""
