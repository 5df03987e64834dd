"""Files in memory (`MemoryFiles`), copy-on-write over another tree (`OverlayFiles`), and another tree as it was first seen
(`SnapshotFiles`).

A file in memory consists of a base (leading bytes of a file in the underlying tree, which never changes) and of extents written over it. So
truncating a log of many GiB or appending to it costs nothing. As in POSIX, a handle keeps its file when the file is renamed or unlinked.
"""

from __future__ import annotations

import errno
import os
import posixpath
import time
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple, Self

from kops.errors import LockHeldError
from kops.files.api import LOCK_FILE, File, Files, FileStat, Lock, Mode, ReadOnlyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_COMPARE_SIZE = 1 << 20


class Changes(NamedTuple):
    """How an overlay differs from its base: the sorted paths of created, changed and removed files, and those of directories."""

    created: list[str]
    changed: list[str]
    removed: list[str]
    created_dirs: list[str]
    removed_dirs: list[str]


_MOST_OPEN = 128  # files of the base: loading a log directory opens every segment, and a process may have 1,024


class _FileNode:
    """One file of `size` bytes. The first `base_size` come from `base_path` unless an extent covers them. The rest are zeros."""

    __slots__ = ("base_file", "base_path", "base_size", "data", "is_file", "mode", "mtime_ms", "size", "starts")

    def __init__(self, base_path: str | None, size: int, mtime_ms: int, mode: int, is_file: bool = True) -> None:
        self.is_file = is_file  # a pipe is not a file, for example
        self.base_path = base_path
        self.base_file: File | None = None
        self.base_size = size if base_path is not None else 0
        self.size = size
        self.mtime_ms = mtime_ms
        self.mode = mode
        self.starts: list[int] = []
        self.data: list[bytearray] = []

    def read(self, tree: _TreeFiles, position: int, size: int) -> bytes:
        end = min(position + size, self.size)
        if position >= end:
            return b""
        first = max(bisect_right(self.starts, position) - 1, 0)
        parts: list[bytes] = []
        at = position
        for i in range(first, len(self.starts)):
            start = self.starts[i]
            if start >= end:
                break
            stop = start + len(self.data[i])
            if stop <= at:
                continue
            if start > at:
                parts.append(self._below(tree, at, start))
                at = start
            upto = min(stop, end)
            parts.append(bytes(memoryview(self.data[i])[at - start : upto - start]))
            at = upto
        if at < end:
            parts.append(self._below(tree, at, end))
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _below(self, tree: _TreeFiles, start: int, end: int) -> bytes:
        """Return the bytes below the extents: the base's bytes, then zeros (also where the base has shrunk meanwhile)."""
        stop = min(end, self.base_size)
        if stop <= start or tree.base is None or self.base_path is None:
            return bytes(end - start)
        if self.base_file is None:
            self.base_file = tree.base.open(self.base_path)
            tree.opened(self)
        data = self.base_file.read(start, stop - start)
        return data if len(data) == end - start else data + bytes(end - start - len(data))

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        view = memoryview(data).cast("B")
        if not len(view):
            return
        end = position + len(view)
        i = bisect_right(self.starts, position) - 1
        if i >= 0:
            start, extent = self.starts[i], self.data[i]
            if position <= start + len(extent):
                # It touches or overlaps the previous extent, which grows, so that appends stay one extent.
                extent[position - start : end - start] = view
                self._merge_following(i)
                self.size = max(self.size, end)
                return
        self.starts.insert(i + 1, position)
        self.data.insert(i + 1, bytearray(view))
        self._merge_following(i + 1)
        self.size = max(self.size, end)

    def _merge_following(self, i: int) -> None:
        """Remove the parts of later extents that extent `i` covers."""
        end = self.starts[i] + len(self.data[i])
        last = i + 1
        while last < len(self.starts) and self.starts[last] < end:
            tail = self.starts[last] + len(self.data[last])
            if tail > end:
                self.data[i] += memoryview(self.data[last])[end - self.starts[last] :]
                end = tail
            last += 1
        del self.starts[i + 1 : last]
        del self.data[i + 1 : last]

    def truncate(self, size: int) -> None:
        if size < self.size:
            self.base_size = min(self.base_size, size)
            keep = bisect_right(self.starts, size - 1) if size else 0
            del self.starts[keep:]
            del self.data[keep:]
            if keep:
                del self.data[-1][size - self.starts[-1] :]
        self.size = size

    def close(self) -> None:
        if self.base_file is not None:
            self.base_file.close()
            self.base_file = None


class _DirNode:
    """One directory: names that were changed or looked up (None: removed), over the entries of `base_path`, if there is one."""

    __slots__ = ("base_path", "children", "mode", "mtime_ms", "seen")

    def __init__(self, base_path: str | None, mtime_ms: int, mode: int) -> None:
        self.base_path = base_path
        self.seen: list[str] | None = None  # of SnapshotFiles
        self.mtime_ms = mtime_ms
        self.mode = mode
        self.children: dict[str, _Node | None] = {}


_Node = _FileNode | _DirNode
Names = list[str]  # inside a class with a method `list`, the name `list` means that method


class TreeFile(File):
    """A handle of a file in memory."""

    __slots__ = ("_files", "_node", "_writable", "path")

    def __init__(self, files: _TreeFiles, path: str, node: _FileNode, writable: bool) -> None:
        self._files = files
        self._node: _FileNode | None = node
        self._writable = writable
        self.path = path

    def size(self) -> int:
        return self._open_node().size

    def duplicate(self) -> Self:
        return type(self)(self._files, self.path, self._open_node(), self._writable)

    def read(self, position: int, size: int) -> bytes:
        return self._open_node().read(self._files, position, size)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        node = self._writable_node()
        node.write(position, data)
        node.mtime_ms = self._files.now_ms()

    def sync(self) -> None:
        self._writable_node()

    def truncate(self, size: int) -> None:
        if size < 0:
            raise _os_error(errno.EINVAL, self.path)
        node = self._writable_node()
        node.truncate(size)
        node.mtime_ms = self._files.now_ms()

    def fileno(self) -> int:
        raise _os_error(errno.ENOTSUP, self.path)

    def close(self) -> None:
        node, self._node = self._node, None
        if node is not None:
            node.close()

    def _open_node(self) -> _FileNode:
        if self._node is None:
            raise _os_error(errno.EBADF, self.path)
        return self._node

    def _writable_node(self) -> _FileNode:
        node = self._open_node()
        if not self._writable:
            raise ReadOnlyError(f"{self.path} is open for reading only")
        return node


class _TreeLock(Lock):
    def __init__(self, files: _TreeFiles, path: str) -> None:
        self._files = files
        self.path = path

    def release(self) -> None:
        self._files.locks.discard(self.path)


class _TreeFiles(Files):
    """The common part of both trees."""

    def __init__(self, base: Files | None, now_ms: Callable[[], int] | None) -> None:
        self.base = base
        self.now_ms = now_ms or (lambda: time.time_ns() // 1_000_000)
        self.locks: set[str] = set()
        self._opened: dict[_FileNode, None] = {}  # nodes whose base file may be open, the oldest first
        self._root = _DirNode("/" if base is not None else None, self.now_ms(), 0o755)

    def opened(self, node: _FileNode) -> None:
        """A node opened its base file. If there are many, the oldest one is closed; the next read opens it again."""
        self._opened.pop(node, None)
        self._opened[node] = None
        if len(self._opened) > _MOST_OPEN:
            oldest = next(iter(self._opened))
            del self._opened[oldest]
            oldest.close()

    def close_base_files(self) -> None:
        """Close all files of the base that are open. A later read opens them again."""
        for node in self._opened:
            node.close()
        self._opened.clear()

    def absolute(self, path: str) -> str:
        return self.base.absolute(path) if self.base is not None else posixpath.normpath(posixpath.join("/", path))

    def open(self, path: str, mode: Mode = "r") -> TreeFile:
        parent, name = self._parent(path)
        node = self._child(parent, name) if name else parent
        if isinstance(node, _DirNode):
            raise _os_error(errno.EEXIST if mode == "new" else errno.EISDIR, path)
        if node is None:
            if mode not in ("create", "new"):
                raise _os_error(errno.ENOENT, path)
            node = _FileNode(None, 0, self.now_ms(), 0o644)
            parent.children[name] = node
            parent.mtime_ms = self.now_ms()
        elif mode == "new":
            raise _os_error(errno.EEXIST, path)
        return TreeFile(self, path, node, mode != "r")

    def sync_dir(self, path: str) -> None:
        self._dir(path)

    def rename(self, source: str, target: str) -> None:
        source_parent, source_name = self._parent(source)
        node = self._child(source_parent, source_name)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        target_parent, target_name = self._parent(target)
        if not target_name or (self.absolute(target) + "/").startswith(self.absolute(source) + "/"):
            if self.absolute(target) == self.absolute(source):
                return
            raise _os_error(errno.EINVAL, target)
        there = self._child(target_parent, target_name)
        if isinstance(there, _DirNode):
            if not isinstance(node, _DirNode):
                raise _os_error(errno.EISDIR, target)
            if self._names(there):
                raise _os_error(errno.ENOTEMPTY, target)
        elif there is not None and isinstance(node, _DirNode):
            raise _os_error(errno.ENOTDIR, target)
        self._remove(source_parent, source_name)
        target_parent.children[target_name] = node
        target_parent.mtime_ms = self.now_ms()

    def link(self, source: str, target: str) -> None:
        node = self._find(source)
        if node is None:
            raise _os_error(errno.ENOENT, source)
        if isinstance(node, _DirNode):
            raise _os_error(errno.EPERM, source)
        parent, name = self._parent(target)
        if not name or self._child(parent, name) is not None:
            raise _os_error(errno.EEXIST, target)
        parent.children[name] = node
        parent.mtime_ms = self.now_ms()

    def unlink(self, path: str) -> None:
        parent, name = self._parent(path)
        node = self._child(parent, name) if name else parent
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, _DirNode):
            raise _os_error(errno.EISDIR, path)
        self._remove(parent, name)

    def rmdir(self, path: str) -> None:
        parent, name = self._parent(path)
        if self._names(self._dir(path)):
            raise _os_error(errno.ENOTEMPTY, path)
        self._remove(parent, name)

    def mkdir(self, path: str) -> None:
        parent, name = self._parent(path)
        if not name or self._child(parent, name) is not None:
            raise _os_error(errno.EEXIST, path)
        parent.children[name] = _DirNode(None, self.now_ms(), 0o755)
        parent.mtime_ms = self.now_ms()

    def exists(self, path: str) -> bool:
        try:
            return self._find(path) is not None
        except (FileNotFoundError, NotADirectoryError):
            return False

    def stat(self, path: str) -> FileStat:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if isinstance(node, _DirNode):
            return FileStat(0, node.mtime_ms, True, node.mode, False)
        return FileStat(node.size, node.mtime_ms, False, node.mode, node.is_file)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        node.mtime_ms = mtime_ms

    def copy_owner(self, source: str, target: str) -> None:
        node = self._find(target)
        if node is None:
            raise _os_error(errno.ENOENT, target)
        node.mode = self.stat(source).mode

    def set_mode(self, path: str, mode: int) -> None:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        node.mode = mode

    def list(self, path: str) -> list[str]:
        return self._names(self._dir(path))

    def lock(self, path: str) -> Lock:
        self.open(posixpath.join(path, LOCK_FILE), "create").close()
        name = self.absolute(path)
        if name in self.locks:
            raise LockHeldError(f"{path}: the lock file {LOCK_FILE} is held already")
        self.locks.add(name)
        return _TreeLock(self, name)

    def _parent(self, path: str) -> tuple[_DirNode, str]:
        """The directory that holds `path`, and the name in it ("" for the root)."""
        parts = [part for part in self.absolute(path).split("/") if part]
        node = self._root
        for part in parts[:-1]:
            child = self._child(node, part)
            if child is None:
                raise _os_error(errno.ENOENT, path)
            if not isinstance(child, _DirNode):
                raise _os_error(errno.ENOTDIR, path)
            node = child
        return node, parts[-1] if parts else ""

    def _find(self, path: str) -> _Node | None:
        parent, name = self._parent(path)
        return self._child(parent, name) if name else parent

    def _dir(self, path: str) -> _DirNode:
        node = self._find(path)
        if node is None:
            raise _os_error(errno.ENOENT, path)
        if not isinstance(node, _DirNode):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _child(self, parent: _DirNode, name: str) -> _Node | None:
        if name in parent.children:
            return parent.children[name]
        if parent.base_path is None or self.base is None:
            return None
        path = posixpath.join(parent.base_path, name)
        try:
            status = self.base.stat(path)
        except FileNotFoundError:
            return None
        node: _Node
        if status.is_dir:
            node = _DirNode(path, status.mtime_ms, status.mode)
        else:
            node = _FileNode(path, status.size, status.mtime_ms, status.mode, status.is_file)
        parent.children[name] = node
        return node

    def _remove(self, parent: _DirNode, name: str) -> None:
        if parent.base_path is None:
            del parent.children[name]
        else:
            parent.children[name] = None
        parent.mtime_ms = self.now_ms()

    def _names(self, node: _DirNode) -> Names:
        names = set(self.base.list(node.base_path)) if node.base_path is not None and self.base is not None else set()
        for name, child in node.children.items():
            if child is None:
                names.discard(name)
            else:
                names.add(name)
        return sorted(names)


class MemoryFiles(_TreeFiles):
    """Files that exist only in memory. The root `/` always exists, and relative paths begin there."""

    def __init__(self, *, now_ms: Callable[[], int] | None = None) -> None:
        super().__init__(None, now_ms)


class OverlayFiles(_TreeFiles):
    """Copy-on-write over `base`. Reads fall through to the base. Everything that is written, renamed or removed stays in memory; nothing is
    written to `base`.

    The base must not change meanwhile. A directory with two names (a symbolic link) counts as two directories.
    """

    base: Files

    def __init__(self, base: Files, *, now_ms: Callable[[], int] | None = None) -> None:
        super().__init__(base, now_ms)

    def open(self, path: str, mode: Mode = "r") -> TreeFile:
        """Open as in any tree. A base file without read permission fails here, not at its first read."""
        file = super().open(path, mode)
        node = file._open_node()
        if node.base_path is not None and node.base_file is None and node.base_size:
            self.base.open(node.base_path).close()
        return file

    def changes(self, path: str = "/") -> Changes:
        """Return the differences from the base below `path`. A renamed file is removed at its old path and created at its new one."""
        found = Changes([], [], [], [], [])
        try:
            node = self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            node = None
        self._compare(self.absolute(path), node, found)
        return Changes(*(sorted(paths) for paths in found))

    def _compare(self, path: str, node: _Node | None, found: Changes) -> None:
        below = self._base_stat(path)
        if node is None:
            if below is not None:
                self._all_removed(path, below, found)
        elif isinstance(node, _FileNode):
            if below is not None and not below.is_dir:
                if not self._same(node, path, below.size):
                    found.changed.append(path)
                return
            if below is not None:
                self._all_removed(path, below, found)
            found.created.append(path)
        else:
            self._compare_dir(path, node, below, found)

    def _compare_dir(self, path: str, node: _DirNode, below: FileStat | None, found: Changes) -> None:
        if below is None or not below.is_dir:
            if below is not None:
                found.removed.append(path)
            found.created_dirs.append(path)
        names = set(node.children)
        if node.base_path != path:
            names.update(self._names(node))
            if below is not None and below.is_dir:
                names.update(self.base.list(path))
        for name in sorted(names):
            self._compare(posixpath.join(path, name), self._child(node, name), found)

    def _all_removed(self, path: str, status: FileStat, found: Changes) -> None:
        if not status.is_dir:
            found.removed.append(path)
            return
        found.removed_dirs.append(path)
        for name in self.base.list(path):
            child = posixpath.join(path, name)
            self._all_removed(child, self.base.stat(child), found)

    def _base_stat(self, path: str) -> FileStat | None:
        try:
            return self.base.stat(path)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _same(self, node: _FileNode, path: str, size: int) -> bool:
        """Whether the file's bytes are those of the base at `path`. Compares only the written bytes, unless the file came from another
        path."""
        if node.size != size:
            return False
        with self.base.open(path) as file:
            return all(node.read(self, at, length) == file.read(at, length) for at, length in _differing(node, path))


class SnapshotFiles(OverlayFiles):
    """A read-only view of a base that somebody else may be writing to. The names in a directory and the size of a file stay as they were
    when first read. Appended bytes and new files are not visible. Overwritten bytes are, and a file that is removed meanwhile is missing
    when it is read.
    """

    def _names(self, node: _DirNode) -> Names:
        if node.seen is None:
            node.seen = super()._names(node)
        return list(node.seen)

    def _child(self, parent: _DirNode, name: str) -> _Node | None:
        if parent.seen is not None and name not in parent.children and name not in parent.seen:
            return None
        child = super()._child(parent, name)
        if child is None:
            parent.children[name] = None
        return child


def _differing(node: _FileNode, path: str) -> Iterator[tuple[int, int]]:
    """Return the ranges (position, size) of a file in memory that may differ from the base's file at `path`."""
    ranges = [(node.base_size, node.size), *((start, start + len(data)) for start, data in zip(node.starts, node.data, strict=True))]
    if node.base_path != path:
        ranges = [(0, node.size)]
    for start, end in ranges:
        for at in range(start, end, _COMPARE_SIZE):
            yield at, min(_COMPARE_SIZE, end - at)


def _os_error(code: int, path: str) -> OSError:
    """Return an OSError as the system raises it. Python chooses the class by the code."""
    return OSError(code, os.strerror(code), path)
