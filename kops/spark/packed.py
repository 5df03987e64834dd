"""The results of `kops scan verify` in little memory: the driver keeps those of all segments until the last task has ended.

A result is a dozen Python objects of about 2 KiB together; packed it has some 100 bytes. Tasks pack their answers, too, so the driver never
has more than one segment unpacked. These bytes leave no scan: tasks send them as they send any other answer.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from kops.forensics.verify.facts.facts import SegmentFacts
from kops.forensics.verify.partition import SegmentResult, SegmentTask

_PROTOCOL = 5
_FASTEST = 1
_RAW = -15  # deflate without header and checksum


def pack(value: Any) -> bytes:
    """Return a value as bytes, in a task."""
    return zlib.compress(pickle.dumps(value, _PROTOCOL), _FASTEST)


def unpack(data: bytes) -> Any:
    """Return the value that `pack` was given."""
    return pickle.loads(zlib.decompress(data))


class PackedResults(Mapping[str, SegmentResult]):
    """The results of segments by the paths of their logs, in the order in which they were added."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[SegmentTask, bytes]] = {}

    def add(self, result: SegmentResult) -> None:
        """Add the result of a segment."""
        packer = zlib.compressobj(_FASTEST, wbits=_RAW, zdict=_words())
        data = packer.compress(pickle.dumps((result.facts, result.findings, result.spacing), _PROTOCOL)) + packer.flush()
        self._found[result.task.path] = (result.task, data)

    def update(self, other: PackedResults) -> None:
        """Add all results of another."""
        self._found |= other._found

    def __getitem__(self, path: str) -> SegmentResult:
        task, data = self._found[path]
        unpacker = zlib.decompressobj(wbits=_RAW, zdict=_words())
        return SegmentResult(task, *pickle.loads(unpacker.decompress(data) + unpacker.flush()))

    def __contains__(self, path: object) -> bool:
        return path in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)


@cache
def _words() -> bytes:
    """What most results have in common: the names of classes and fields. Compression refers to it."""
    return pickle.dumps((SegmentFacts(0, 0, 0), [], None), _PROTOCOL)
