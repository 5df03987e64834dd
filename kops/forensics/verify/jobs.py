"""Reads segments in several processes, and decides which ones, in which order, and until when. Large ones are read in parts."""

from __future__ import annotations

import contextlib
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from kops.errors import UsageError
from kops.files import Files
from kops.forensics.verify.facts.facts import DEEP, FULL, QUICK
from kops.forensics.verify.partition import SegmentResult, SegmentTask, verify_segment

if TYPE_CHECKING:
    from kops.forensics.verify.parts import Answer, Part

_SHARE = re.compile(r"(\d{1,9})/(\d{1,9})")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")
_STEPS = 1_000_000
AUTO_BYTES: Final = 64 << 20
AUTO_JOBS: Final = 4
AUTO_JOBS_CRC: Final = 2
PART_BYTES: Final = 256 << 20
LEAST_PART_BYTES: Final = 32 << 20


def choose(tasks: list[SegmentTask], sample: str | None) -> tuple[list[SegmentTask], list[str]]:
    """-> (the segments in the sample, the paths of the others). `n/t`: every t-th beginning with the n-th (from 1), so that t runs cover
    all; `x%`: by a hash of the segment's directory name and offset. Raises `UsageError`."""
    if sample is None:
        return tasks, []
    share = _SHARE.fullmatch(sample.strip())
    percent = _PERCENT.fullmatch(sample.strip())
    if share is not None:
        number, total = int(share[1]), int(share[2])
        if not 1 <= number <= total:
            raise UsageError(f"--sample {sample}: in n/t, n is from 1 to t")
        picked = [place % total == number - 1 for place in range(len(tasks))]
    elif percent is not None and 0 < float(percent[1]) <= 100:
        limit = float(percent[1]) / 100 * _STEPS
        picked = [_hash(task) % _STEPS < limit for task in tasks]
    else:
        raise UsageError(f"--sample {sample}: n/t (the n-th of t shares) or x% (more than 0, at most 100) is needed")
    chosen = [task for task, taken in zip(tasks, picked, strict=True) if taken]
    return chosen, [task.path for task, taken in zip(tasks, picked, strict=True) if not taken]


def _hash(task: SegmentTask) -> int:
    names = task.path.replace("\\", "/").split("/")[-2:]
    return zlib.crc32("/".join(names).encode("utf-8", "surrogateescape"))


def jobs_that_pay(jobs: int | None, tasks: list[SegmentTask]) -> int:
    """Return the number of processes: the requested one, or (None) as many as are useful, at most four."""
    if jobs is not None:
        return max(1, jobs)
    if sum(task.size for task in tasks) < AUTO_BYTES:
        return 1
    # Checksums are as fast as memory, so a third process only slows the others.
    limit = AUTO_JOBS if any(task.level in (DEEP, FULL) for task in tasks) else AUTO_JOBS_CRC
    return min(os.cpu_count() or 1, limit)


def run_tasks(
    tasks: list[SegmentTask], files: Files, jobs: int, deadline: float | None, progress: Callable[[int], None] | None
) -> Iterator[SegmentResult]:
    """Yield the results as they come. After the deadline (of `time.monotonic`) no further segment is started."""
    if jobs > 1 and (len(tasks) > 1 or sum(task.size for task in tasks) > LEAST_PART_BYTES):
        yield from _run_in_processes(tasks, files, jobs, deadline, progress)
        return
    for task in tasks:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield verify_segment(task, files, progress)


def _run_in_processes(
    tasks: list[SegmentTask], files: Files, jobs: int, deadline: float | None, progress: Callable[[int], None] | None
) -> Iterator[SegmentResult]:
    """Start them in the given order, so that after an interruption the first ones have been read."""
    from kops.forensics.verify.parts import join_parts, read_part
    from kops.forensics.verify.workers import spread

    parts, counts = _parts(tasks, files, jobs)

    def work(part: Part) -> Answer | SegmentResult:
        task = tasks[part.number]
        return read_part(files, part, task) if counts[part.number] > 1 else verify_segment(task, files)

    def allowed() -> Iterator[int]:
        for place, part in enumerate(parts):
            if not part.start and deadline is not None and time.monotonic() >= deadline:
                return
            yield place

    waiting: dict[int, list[Answer]] = {}
    for done in spread(work, parts, min(jobs, len(parts)), allowed()):
        if isinstance(done, SegmentResult):
            if progress is not None:
                progress(done.task.size)
            yield done
            continue
        part = done[0]
        if progress is not None:
            progress(part.size)
        answers = waiting.setdefault(part.number, [])
        answers.append(done)
        if len(answers) == counts[part.number]:
            answers.sort(key=lambda answer: answer[0].start)
            yield join_parts(files, tasks[part.number], waiting.pop(part.number))


def _parts(tasks: list[SegmentTask], files: Files, jobs: int) -> tuple[list[Part], list[int]]:
    """-> (the parts of all segments, how many each segment has). A segment whose headers alone are read stays whole."""
    from kops.forensics.verify.parts import Part, index_beside, part_bytes, split_segment

    target = part_bytes(jobs, [task.size for task in tasks], PART_BYTES, LEAST_PART_BYTES)
    parts: list[Part] = []
    counts: list[int] = []
    for number, task in enumerate(tasks):
        found = [Part(number, task.path, 0, task.size)]
        if task.size > target and not task.indexes_only and task.level != QUICK:
            with contextlib.suppress(OSError):  # Reading it will report the error.
                found = split_segment(files, number, task.path, task.size, index_beside(files, task), target)
        parts += found
        counts.append(len(found))
    return parts, counts
