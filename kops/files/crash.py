"""Files in memory that can show the states that a power loss may leave.

The model is a journalling file system with ordered metadata (ext4 with data=ordered, XFS), reduced to the guarantees on which its users may
rely:

* Names and truncations (create, rename, link, unlink, mkdir, rmdir, truncate, set_mtime, copy_owner, set_mode) reach the disk in the order
  in which they were made: a power loss leaves a prefix of them. `sync_dir` makes the changes of that directory durable, and so all earlier
  ones. `sync` does the same up to the last change of its file (including growth), because it forces the journal up to that change. POSIX
  does not promise this: with `posix`, a file's `sync` does not cover names.
* A file's bytes are written back in pages of 4096 bytes, at any time and in any order, also across files, until `sync` has returned. So
  each page has the contents of some moment since it was last synced. A page that is being written may be torn at or within a sector (512
  bytes).
* A size grows with the pages or before them, and bytes that are not written yet read as zeros. A truncation is on disk if a later change in
  the journal is, and no byte from before it reappears.
* A failing `sync` leaves its pages clean, as Linux does. The process still reads them, but the disk may never have had them, and a later
  successful `sync` does not write them.

A process that is killed (`killed`) loses nothing it has written.

    files = CrashFiles()
    ...                                         # each operation that changes something is one of files.operations
    for at in range(len(files.operations) + 1):
        disk = files.after_power_loss("random", seed=7, at=at)
"""

from __future__ import annotations

import errno
import os
import random
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from kops.files.faulty import Crash
from kops.files.tree import MemoryFiles, TreeFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.files.api import Mode

PAGE_BYTES: Final = 4096
SECTOR_BYTES: Final = 512

Loss = Literal["lost", "zeros", "data", "ordered", "random"]
"""What a power loss destroys. `lost`: everything that was not synced. `zeros`: all bytes, but no name and no size. `data`: all names, but
no byte that was written over others. `ordered`: everything after some moment. `random`: pages, sizes and names independently, with some
pages torn."""
LOSSES: Final[tuple[Loss, ...]] = get_args(Loss)


class Operation(NamedTuple):
    """One change, counted from 1: its kind and path, and the `position` and `data` of a write. For a truncation, `position` is the size."""

    number: int
    kind: str
    path: str
    position: int = 0
    data: bytes = b""


class Fault(NamedTuple):
    """How an operation fails: the errno (0: the process dies), and how many bytes of a write take effect before that."""

    error: int
    written: int = 0


class _Size(NamedTuple):
    number: int
    size: int
    truncated: bool
    mtime_ms: int


class _Version(NamedTuple):
    """A page after operation `number`. `cut` is the position in the page where the operation truncated the file, or None for a write."""

    number: int
    data: bytes
    cut: int | None = None


@dataclass(eq=False, slots=True)
class _Inode:
    """A file's history: its sizes, its pages, and the numbers of the syncs, including failed ones."""

    sizes: list[_Size]
    pages: dict[int, list[_Version]] = field(default_factory=dict)
    syncs: list[int] = field(default_factory=list)
    failed: set[int] = field(default_factory=set)

    def is_durable(self, number: int, at: int) -> bool:
        """Whether the pages of operation `number` were synced by operation `at`. Only the first sync after the operation counts, because it
        leaves the pages clean."""
        i = bisect_right(self.syncs, number)
        return i < len(self.syncs) and self.syncs[i] <= at and self.syncs[i] not in self.failed

    def last_sync(self, at: int) -> int:
        """The number of the last successful sync, or 0 if there is none."""
        return max((number for number in self.syncs if number <= at and number not in self.failed), default=0)

    def size_at(self, number: int) -> int:
        """Return the index of the size after operation `number`."""
        return bisect_right(self.sizes, number, key=lambda size: size.number) - 1


class _Name(NamedTuple):
    """A change of names: a method of `Files`, its arguments, and the inode of a created file."""

    number: int
    method: str
    arguments: tuple[Any, ...]
    inode: _Inode | None


class CrashFiles(MemoryFiles):
    """Files in memory that record every operation. The argument `at` of a method is the number of operations that were done, by default
    all.

    `fault` is called before each operation. `space_bytes` is the size of the disk: a write that makes a file grow fails with ENOSPC at the
    first byte that does not fit, and the bytes before it are written. After a fault with errno 0 everything raises `Crash`. For `posix`,
    see above. `read_fault` is called before each read. It returns the errno with which the read fails, or None.
    """

    def __init__(
        self,
        *,
        now_ms: Callable[[], int] | None = None,
        fault: Callable[[Operation], Fault | None] | None = None,
        space_bytes: int | None = None,
        posix: bool = False,
    ) -> None:
        super().__init__(now_ms=now_ms)
        self.posix = posix
        self.fault = fault
        self.read_fault: Callable[[str], int | None] | None = None
        self.space_bytes = space_bytes
        self.crashed = False
        self.operations: list[Operation] = []
        self._inodes: dict[object, _Inode] = {}
        self._names_done: list[_Name] = []
        self._touched: dict[object, int] = {}
        # (number of the sync, number of the last change of names that it made durable), both increasing.
        self._name_syncs: list[tuple[int, int]] = []

    # operations --------------------------------------------------------------------------------------------------------------------

    def open(self, path: str, mode: Mode = "r") -> TreeFile:
        self._check_alive()
        makes = mode in ("create", "new") and not super().exists(path)
        if makes:
            self._try("create", path)
        file = super().open(path, mode)
        node = file._open_node()
        if makes:
            number = self._done("create", path)
            inode = self._inodes[node] = _Inode([_Size(number, 0, True, node.mtime_ms)])
            self._named(number, "open", (path, "new"), inode)
            self._touched[node] = number
        return _CrashFile(self, path, node, mode != "r")

    def sync_dir(self, path: str) -> None:
        self._try("sync_dir", path)
        node = self._dir(path)
        number = self._done("sync_dir", path)
        self._name_syncs.append((number, max(self._touched.get(node, 0), self.names_durable())))

    def sync_all(self) -> None:
        """Make everything durable, as sync(2) does."""
        number = self._done("sync_all", "/")
        for inode in self._inodes.values():
            inode.syncs.append(number)
        self._name_syncs.append((number, number))

    def rename(self, source: str, target: str) -> None:
        self._change("rename", source, target)

    def link(self, source: str, target: str) -> None:
        self._change("link", source, target)

    def unlink(self, path: str) -> None:
        self._change("unlink", path)

    def rmdir(self, path: str) -> None:
        self._change("rmdir", path)

    def mkdir(self, path: str) -> None:
        self._change("mkdir", path)

    def set_mtime(self, path: str, mtime_ms: int) -> None:
        self._change("set_mtime", path, mtime_ms)

    def copy_owner(self, source: str, target: str) -> None:
        self._change("copy_owner", source, target)

    def set_mode(self, path: str, mode: int) -> None:
        self._change("set_mode", path, mode)

    def _change(self, method: str, path: str, *more: Any) -> None:
        self._try(method, path)
        concerned: list[object] = [self._parent(name)[0] for name in (path, *more) if isinstance(name, str)]
        concerned.append(self._find(path) if self.exists(path) else None)
        getattr(super(), method)(path, *more)
        number = self._done(method, path)
        for node in concerned:
            self._touched[node] = number
        self._named(number, method, (path, *more), None)

    def _named(self, number: int, method: str, arguments: tuple[Any, ...], inode: _Inode | None) -> None:
        self._touched[self._parent(arguments[0])[0]] = number
        self._names_done.append(_Name(number, method, arguments, inode))

    def _try(self, kind: str, path: str, position: int = 0, data: bytes = b"") -> Fault | None:
        """Apply the fault. Returns a fault that leaves part of a write, so that the caller can do that part."""
        self._check_alive()
        fault = self.fault(Operation(len(self.operations) + 1, kind, path, position, data)) if self.fault is not None else None
        if fault is not None and not (data and fault.written):
            self._fail(fault, path)
        return fault

    def _fail(self, fault: Fault, path: str) -> None:
        if not fault.error:
            self.crashed = True
            raise Crash(path)
        raise OSError(fault.error, os.strerror(fault.error), path)

    def _check_alive(self) -> None:
        if self.crashed:
            raise Crash("after the crash")

    def _done(self, kind: str, path: str, position: int = 0, data: bytes = b"") -> int:
        self.operations.append(Operation(len(self.operations) + 1, kind, path, position, data))
        return len(self.operations)

    def _room(self, file: _CrashFile, end: int) -> int:
        """Return the number of bytes that the disk lacks if a file grows to `end`."""
        if self.space_bytes is None:
            return 0
        grows = max(0, end - file.size())
        used = sum(self.stat(path).size for path in self.walk("/"))
        return max(0, used + grows - self.space_bytes) if grows else 0

    # after a crash -----------------------------------------------------------------------------------------------------------------

    def names_durable(self, at: int | None = None) -> int:
        """Return the number of the last operation on names that is certainly on disk."""
        i = bisect_right(self._name_syncs, len(self.operations) if at is None else at, key=lambda sync: sync[0])
        return self._name_syncs[i - 1][1] if i else 0

    def killed(self, at: int | None = None, part: int = 0) -> MemoryFiles:
        """Return the state that a killed process leaves: everything written, and `part` bytes of the next write."""
        at = len(self.operations) if at is None else at
        disk, inodes = self._tree(at)
        for inode, file in inodes.items():
            for page in inode.pages:
                self._put(file, page, _last(inode.pages[page], at))
            _settle(disk, inode, file, inode.size_at(at))
        following = self.operations[at] if at < len(self.operations) else None
        if following is not None and following.kind == "write" and part and disk.exists(following.path):
            with disk.open(following.path, "rw") as written:
                written.write(following.position, following.data[:part])
        return disk

    def after_power_loss(self, loss: Loss = "random", seed: int = 0, at: int | None = None) -> MemoryFiles:
        """Return a state that a power loss after operation `at` may leave. The same arguments give the same state."""
        at = len(self.operations) if at is None else at
        dice = random.Random(f"{loss} {seed} {at}")
        certain = self.names_durable(at)
        moment = dice.randint(certain, at)
        names = {"lost": certain, "zeros": at, "data": certain}.get(loss, moment)
        disk, inodes = self._tree(names)
        for inode, file in inodes.items():
            choose = _Choice(dice, inode, loss, names, at)
            for page in sorted(inode.pages):
                self._put(file, page, choose.page(inode.pages[page]))
            _settle(disk, inode, file, choose.size())
        return disk

    def _tree(self, names: int) -> tuple[MemoryFiles, dict[_Inode, TreeFile]]:
        """Return the names after `names` operations, and their files, which are still empty."""
        disk = MemoryFiles(now_ms=self.now_ms)
        inodes: dict[_Inode, TreeFile] = {}
        for name in self._names_done:
            if name.number > names:
                break
            made = getattr(disk, name.method)(*name.arguments)
            if name.inode is not None:
                inodes[name.inode] = made
        return disk, inodes

    @staticmethod
    def _put(file: TreeFile, page: int, data: bytes) -> None:
        if data.strip(b"\0"):
            file.write(page * PAGE_BYTES, data)


class _CrashFile(TreeFile):
    """A handle that records."""

    __slots__ = ()

    _files: CrashFiles

    def read(self, position: int, size: int) -> bytes:
        code = None if self._files.read_fault is None else self._files.read_fault(self.path)
        if code is not None:
            raise OSError(code, os.strerror(code), self.path)
        return super().read(position, size)

    def write(self, position: int, data: bytes | bytearray | memoryview) -> None:
        files, node, view = self._files, self._writable_node(), bytes(data)
        fault = files._try("write", self.path, position, view)
        if fault is not None:
            view = view[: fault.written]
        else:
            missing = min(files._room(self, position + len(view)), len(view))
            if missing:
                fault, view = Fault(errno.ENOSPC), view[: len(view) - missing]
        if view:
            super().write(position, view)
            number = files._done("write", self.path, position, view)
            self._record(number, position, position + len(view))
            inode = files._inodes[node]
            if inode.sizes[-1].size != node.size:
                files._touched[node] = number
                inode.sizes.append(_Size(number, node.size, False, node.mtime_ms))
        if fault is not None:
            files._fail(fault, self.path)

    def truncate(self, size: int) -> None:
        files, node, before = self._files, self._writable_node(), self.size()
        files._try("truncate", self.path, size)
        super().truncate(size)
        number = files._done("truncate", self.path, size)
        if size != before:
            files._inodes[node].sizes.append(_Size(number, size, True, node.mtime_ms))
            files._touched[node] = number
        if size < before:
            self._record(number, size, before, cut=True)

    def sync(self) -> None:
        files, node = self._files, self._writable_node()
        inode = files._inodes[node]
        try:
            files._try("sync", self.path)
        except OSError:
            number = files._done("failed sync", self.path)
            inode.syncs.append(number)
            inode.failed.add(number)
            raise
        number = files._done("sync", self.path)
        inode.syncs.append(number)
        if not files.posix:
            files._name_syncs.append((number, max(files._touched.get(node, 0), files.names_durable())))

    def _record(self, number: int, start: int, end: int, *, cut: bool = False) -> None:
        """Record the current contents of the pages of a range."""
        inode = self._files._inodes[self._open_node()]
        for page in range(start // PAGE_BYTES, -(-end // PAGE_BYTES)):
            if cut and page not in inode.pages:
                continue
            data = super().read(page * PAGE_BYTES, PAGE_BYTES)
            where = max(0, start - page * PAGE_BYTES) if cut else None
            inode.pages.setdefault(page, []).append(_Version(number, data + bytes(PAGE_BYTES - len(data)), where))


class _Choice:
    """Reconstructs one file after a power loss."""

    def __init__(self, dice: random.Random, inode: _Inode, loss: Loss, names: int, at: int) -> None:
        self.dice = dice
        self.inode = inode
        self.loss = loss
        self.at = at
        # Truncations are in the journal of names, or were synced with their file.
        self.journal = max(names, inode.last_sync(at))
        self.torn = loss == "random" and dice.random() < 0.5

    def size(self) -> int:
        """Return the index of the remaining size: that of the last truncation or of a later write."""
        inode = self.inode
        newest = inode.size_at(self.journal)
        oldest = newest
        synced = inode.last_sync(self.at)
        while not inode.sizes[oldest].truncated and inode.sizes[oldest].number > synced:
            oldest -= 1
        if self.loss == "random":
            return self.dice.randint(oldest, newest)
        return oldest if self.loss in ("lost", "data") else newest

    def page(self, versions: list[_Version]) -> bytes:
        """Return the bytes of one page."""
        lowest, highest = self._range(versions)
        if self.loss == "random":
            chosen = self.dice.randint(lowest, highest)
            newer = self.dice.randint(chosen, highest)
            old, new = self._data(versions, chosen), self._data(versions, newer)
            return self._tear(old, new) if self.torn else old
        if self.loss == "ordered":
            moment = bisect_right(versions, self.journal, key=lambda version: version.number) - 1
            return self._data(versions, min(max(moment, lowest), highest))
        return self._data(versions, highest if self.loss == "data" else lowest)

    def _data(self, versions: list[_Version], index: int) -> bytes:
        """Return a version of a page, without the bytes that later truncations in the journal removed."""
        data = _data(versions, index)
        for version in versions[index + 1 :]:
            if version.cut is not None and version.number <= self.journal:
                data = data[: version.cut] + bytes(PAGE_BYTES - version.cut)
        return data

    def _range(self, versions: list[_Version]) -> tuple[int, int]:
        """Return the indexes of the first and last version that may be on disk. -1 is the page before it was first written."""
        count = bisect_right(versions, self.at, key=lambda version: version.number)
        lowest, highest = -1, count - 1
        for i in range(count):
            if self.inode.is_durable(versions[i].number, self.at):
                lowest = i
            elif versions[i].cut is not None and versions[i].number > self.journal:
                return lowest, max(lowest, i - 1)
        return lowest, highest

    def _tear(self, old: bytes, new: bytes) -> bytes:
        """Return a page that was being written: each sector is from the older or the newer version, and one sector may be torn."""
        sectors = [(new if self.dice.random() < 0.5 else old)[i : i + SECTOR_BYTES] for i in range(0, PAGE_BYTES, SECTOR_BYTES)]
        if self.dice.random() < 0.5:
            torn, byte = self.dice.randrange(len(sectors)), self.dice.randrange(SECTOR_BYTES)
            start = torn * SECTOR_BYTES
            sectors[torn] = new[start : start + byte] + old[start + byte : start + SECTOR_BYTES]
        return b"".join(sectors)


def _data(versions: list[_Version], index: int) -> bytes:
    return versions[index].data if index >= 0 else bytes(PAGE_BYTES)


def _last(versions: list[_Version], at: int) -> bytes:
    return _data(versions, bisect_left(versions, at + 1, key=lambda version: version.number) - 1)


def _settle(disk: MemoryFiles, inode: _Inode, file: TreeFile, index: int) -> None:
    """Give a file the size and time of its history's entry `index`."""
    file.truncate(inode.sizes[index].size)
    file._open_node().mtime_ms = inode.sizes[index].mtime_ms
    file.close()
