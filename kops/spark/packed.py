"""Plans and results of scans in little memory: the driver has those of all segments until the last task has ended.

An item of a plan, or a result of `kops scan verify`, is a dozen Python objects of up to 2 KiB together; packed it has some 100 bytes. Tasks
pack their answers, too, so the driver has few of them unpacked at a time. These bytes leave no scan: tasks send them as they send any other
answer.
"""

from __future__ import annotations

import pickle
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from typing import Any, Generic, TypeVar

from kops.forensics.verify.facts.facts import SegmentFacts
from kops.forensics.verify.partition import SegmentResult, SegmentTask
from kops.forensics.verify.parts import MOST_TASKS, TASK_BYTES

Item = TypeVar("Item")
_PROTOCOL = 5
_FASTEST = 1
_TOGETHER = 256
_RAW = -15  # deflate without header and checksum


def pack(value: Any) -> bytes:
    """Return a value as bytes, in a task."""
    return zlib.compress(pickle.dumps(value, _PROTOCOL), _FASTEST)


def unpack(data: bytes) -> Any:
    """Return the value that `pack` was given."""
    return pickle.loads(zlib.decompress(data))


class PackedItems(Iterable[Item]):
    """Items of a plan in their order, packed some hundreds at a time. They can be iterated over several times."""

    def __init__(self, items: Iterable[Item] = ()) -> None:
        self._packed: list[bytes] = []
        self._open: list[Item] = []
        self._count = 0
        for each in items:
            self.append(each)

    def append(self, item: Item) -> None:
        """Add an item at the end."""
        self._open.append(item)
        self._count += 1
        if len(self._open) >= _TOGETHER:
            self._packed.append(pack(self._open))
            self._open.clear()

    def __iter__(self) -> Iterator[Item]:
        for data in self._packed:
            yield from unpack(data)
        yield from self._open

    def __len__(self) -> int:
        return self._count


@dataclass(slots=True)
class Tasks(Generic[Item]):
    """The items of each task, packed, and the bytes that it reads (none: nobody knows)."""

    packed: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.packed)

    def __iter__(self) -> Iterator[list[Item]]:
        """The items of one task after the other."""
        yield from map(unpack, self.packed)


def cut(
    items: Sequence[Item] | PackedItems[Item],
    size: Callable[[Item], int] | Iterable[int] | None,
    parallelism: int,
    target: int = TASK_BYTES,
) -> Tasks[Item]:
    """Divide the items into tasks of about equal bytes, in their order: one for each core, or more of `target` bytes.

    `size` is a function, or the sizes in order. Without it all items count the same, and nothing is said about bytes.
    """
    given = repeat(1, len(items)) if size is None else map(size, items) if callable(size) else size
    sizes = array("q", (max(each, 1) for each in given))
    total = sum(sizes)
    share = max(min(target, -(-total // max(parallelism, 1))), total // MOST_TASKS, 1)
    tasks: Tasks[Item] = Tasks()
    open_: list[Item] = []
    taken = 0
    for item, bytes_ in zip(items, sizes, strict=True):
        # An item goes to the task in which most of it falls.
        if open_ and taken + bytes_ // 2 >= share:
            tasks.packed.append(pack(open_))
            tasks.sizes.append(taken)
            open_, taken = [], 0
        open_.append(item)
        taken += bytes_
    if open_:
        tasks.packed.append(pack(open_))
        tasks.sizes.append(taken)
    if size is None:
        tasks.sizes = []
    return tasks


def largest_first(tasks: Tasks[Item], limit: int) -> list[bytes]:
    """The items of each task: first the tasks of more than `limit` bytes, the largest of them first, and then the others in their order.

    Spark starts tasks in this order. A large task that begins as the last one would keep one core busy alone.
    """
    large = sorted((number for number, size in enumerate(tasks.sizes) if size > limit), key=lambda number: -tasks.sizes[number])
    moved = set(large)
    return [tasks.packed[number] for number in (*large, *(each for each in range(len(tasks)) if each not in moved))]


class PackedResults(Mapping[str, SegmentResult]):
    """The results of segments by the paths of their logs, in the order in which they were added."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[SegmentTask, bytes]] = {}

    def add(self, result: SegmentResult) -> None:
        """Add the result of a segment."""
        self._found[result.task.path] = (result.task, squeeze((result.facts, result.findings, result.spacing)))

    def update(self, other: PackedResults) -> None:
        """Add all results of another."""
        self._found |= other._found

    def __getitem__(self, path: str) -> SegmentResult:
        task, data = self._found[path]
        return SegmentResult(task, *pickle.loads(expand(data)))

    def __contains__(self, path: object) -> bool:
        return path in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


def squeeze(value: Any) -> bytes:
    """Return something about a segment as bytes, in less than `pack` needs."""
    packer = zlib.compressobj(_FASTEST, wbits=_RAW, zdict=_words())
    return packer.compress(pickle.dumps(value, _PROTOCOL)) + packer.flush()


def expand(data: bytes) -> bytes:
    """Return the pickle of a value that `squeeze` was given. Raises zlib.error."""
    unpacker = zlib.decompressobj(wbits=_RAW, zdict=_words())
    return unpacker.decompress(data) + unpacker.flush()


@cache
def _words() -> bytes:
    """What most results have in common: the names of classes and fields. Compression refers to it."""
    return pickle.dumps((SegmentFacts(0, 0, 0), [], None), _PROTOCOL)
