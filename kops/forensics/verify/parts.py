"""Reads large segments in parts: where to cut them, how to read one part, and how to join the results.

A part begins at a batch that the offset index names and that is intact there (header, length, checksum). So scanning the parts gives the
same as scanning the file. Without a usable index a segment stays whole. If two parts don't meet at a batch boundary, the file is read again
as a whole, so the verdict is the same.
"""

from __future__ import annotations

import heapq
import sys
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise, takewhile
from typing import NamedTuple

from kops.errors import KopsError
from kops.files import Files
from kops.forensics.verify.facts.facts import SegmentFacts, join_facts, scan_segment_facts
from kops.forensics.verify.facts.index import IndexSamples
from kops.forensics.verify.partition import SegmentResult, SegmentTask, check_indexes, load_index, verify_segment
from kops.records import Batch, ByteSource, Damage, scan

TASK_BYTES = 512 << 20
"""A task on Spark costs about 40 ms of its own, so it is worth half a GiB (measured)."""


MOST_TASKS = 20_000
"""Spark's driver keeps about 10 KB for each task of a scan."""
_SHARES_A_CORE = 16


class Part(NamedTuple):
    """Bytes `start` to `end` of a `.log`; `number` is the place of the segment in the plan it belongs to."""

    number: int
    path: str
    start: int
    end: int

    @property
    def size(self) -> int:
        """In bytes."""
        return self.end - self.start


Answer = tuple[Part, SegmentFacts | None, str]
"""A part, its facts, or why the file could not be read."""


# cutting ------------------------------------------------------------------------------------------------------------------------------


def split_segment(files: Files, number: int, path: str, size: int, index_path: str | None, target: int = TASK_BYTES) -> list[Part]:
    """The parts of one segment, each of about `target` bytes; one part where there is nothing to cut at."""
    cuts = [0]
    if size > target and index_path is not None:
        positions = _index_positions(files, index_path)
        place = 0
        while (place := bisect_left(positions, cuts[-1] + target, place)) < len(positions):
            position = positions[place]
            place += 1
            if position < cuts[-1] + target or size - position < target // 4:
                break  # The index is out of order, or the rest is too small for a part.
            if _batch_at(files, path, position):
                cuts.append(position)
    cuts.append(size)
    return [Part(number, path, start, end) for start, end in pairwise(cuts)]


def _index_positions(files: Files, index_path: str) -> Sequence[int]:
    """The positions in an offset index, without the zeros that it was preallocated with."""
    try:
        data = files.read_all(index_path)
    except OSError:
        return []
    data = data[: len(data) - len(data) % 8]
    data = data[: (len(data.rstrip(b"\0")) + 7) & -8]
    numbers = array("i", data)
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers[1::2]


def _batch_at(files: Files, path: str, position: int) -> bool:
    with files.open(path) as source:
        found = next(scan(source, position, resync=False), None)
    return isinstance(found, Batch) and found.position == position


def index_beside(files: Files, task: SegmentTask) -> str | None:
    """The offset index of a segment, whether the level asks for its check or not."""
    path = task.index_path or f"{task.path.removesuffix('.log')}.index"
    return path if files.exists(path) else None


def pack(parts: Iterable[Part], bins: int | None = None, target: int = TASK_BYTES) -> list[list[Part]]:
    """Put parts into bins of about equal bytes, largest first: `bins` of them, or one for each `target` bytes; no bin is empty."""
    ordered = sorted(parts, key=lambda part: (-part.size, part.path, part.start))
    total = sum(part.size for part in ordered)
    wanted = min(max(bins or 1, -(-total // target), 1), MOST_TASKS)
    heap: list[tuple[int, int, list[Part]]] = [(0, place, []) for place in range(min(wanted, max(len(ordered), 1)))]
    for part in ordered:
        taken, place, content = heapq.heappop(heap)
        content.append(part)
        heapq.heappush(heap, (taken + part.size, place, content))
    return [
        sorted(content, key=lambda part: (part.path, part.start)) for _, _, content in sorted(heap, key=lambda each: each[1]) if content
    ]


def part_bytes(
    parallelism: int, sizes: Sequence[int], target: int = TASK_BYTES, smallest: int = 16 << 20, shares: int = _SHARES_A_CORE
) -> int:
    """Return the size of a part: `target`, or less if cores would otherwise be idle, but at least `smallest`.

    Where all files together are so large that a part of this size is less than one of the `shares` of a core's work, parts are larger: to
    divide a file takes a look into its index, and there may be a hundred thousand files.
    """
    total = sum(sizes)
    cores = max(parallelism, 1)
    return max(min(target, -(-total // cores)), total // (shares * cores), smallest)


# reading ------------------------------------------------------------------------------------------------------------------------------


def part_items(source: ByteSource, part: Part) -> Iterator[Batch | Damage]:
    """Batches and damages of a part, as a scan of the whole file has them."""
    waiting: list[Damage] = []
    start = part.start
    for item in scan(source, part.start, part.end):
        if isinstance(item, Damage):
            waiting.append(item)
            continue
        if waiting:
            yield from waiting
            waiting.clear()
        start = item.position
        yield item
    if waiting and waiting[-1].end >= part.end < source.size():
        # The bytes around decide what this damage is: the good batch before it, and what follows the end of the part.
        again = scan(source, start)
        if start != waiting[0].position:
            next(again)
        yield from takewhile(lambda item: isinstance(item, Damage), again)
    else:
        yield from waiting


def read_part(files: Files, part: Part, task: SegmentTask) -> Answer:
    """The facts about one part."""
    try:
        index = load_index(files, task.index_path if task.compares else None, "index", task.base_offset)
        time_index = load_index(files, task.time_index_path if task.compares else None, "timeindex", task.base_offset)
        with files.open(part.path) as source:
            return part, scan_segment_facts(source, part.start, part.end, task.level, index=index, time_index=time_index), ""
    except (OSError, KopsError) as error:
        return part, None, str(error)


def check_whole(files: Files, part: Part, task: SegmentTask, facts: SegmentFacts) -> SegmentResult | None:
    """The result of a segment that was read as one part, if there is nothing to say about its indexes. Otherwise None: `join_parts` says it
    where files have the names that the user gave.
    """
    if part.start or part.end != task.size:
        return None
    try:
        index = load_index(files, task.index_path, "index", task.base_offset)
        time_index = load_index(files, task.time_index_path, "timeindex", task.base_offset)
    except (OSError, KopsError):
        return None
    checked, spacing = check_indexes(task, facts, index, time_index)
    if checked:
        return None
    facts.samples = IndexSamples()
    return SegmentResult(task, facts, [], spacing)


def join_parts(files: Files, task: SegmentTask, answers: Sequence[Answer]) -> SegmentResult:
    """Like `verify_segment`, from the results of all parts in order. Parts that do not meet at a batch boundary are read again here."""
    facts = [part_facts for _, part_facts, _ in answers if part_facts is not None]
    if len(facts) < len(answers):
        return verify_segment(task, files)  # This reports why it can't be read.
    try:
        index = load_index(files, task.index_path, "index", task.base_offset)
        time_index = load_index(files, task.time_index_path, "timeindex", task.base_offset)

        def rescan(start: int, end: int) -> SegmentFacts:
            with files.open(task.path) as source:
                return scan_segment_facts(source, start, end, task.level, index=index, time_index=time_index)

        whole = join_facts(facts, rescan)
    except (OSError, KopsError):
        return verify_segment(task, files)
    checked, spacing = check_indexes(task, whole, index, time_index)
    whole.samples = IndexSamples()
    return SegmentResult(task, whole, checked, spacing)
