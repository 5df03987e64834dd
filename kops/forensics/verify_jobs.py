"""Reading segments in several processes: which ones, in what order, until when."""

from __future__ import annotations

import re
import signal
import time
import zlib
from collections.abc import Callable, Iterator

from kops.errors import UsageError
from kops.files import Files
from kops.forensics.verify_partition import SegmentResult, SegmentTask, verify_segment

_SHARE = re.compile(r"(\d{1,9})/(\d{1,9})")
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%")
_STEPS = 1_000_000
_POLL_SECONDS = 0.2


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


def run_tasks(
    tasks: list[SegmentTask], files: Files, jobs: int, deadline: float | None, progress: Callable[[int], None] | None
) -> Iterator[SegmentResult]:
    """The results as they come. After the deadline (of `time.monotonic`) no further segment is begun."""
    if jobs > 1 and len(tasks) > 1:
        yield from _run_in_processes(tasks, files, min(jobs, len(tasks)), deadline, progress)
        return
    for task in tasks:
        if deadline is not None and time.monotonic() >= deadline:
            return
        yield verify_segment(task, files, progress)


_worker_files: Files | None = None


def _start_worker(files: Files) -> None:
    global _worker_files  # noqa: PLW0603 - a worker process has one
    _worker_files = files
    # Ctrl-C reaches the whole group; the parent tells the workers to end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _work(task: SegmentTask) -> SegmentResult:
    assert _worker_files is not None, "the pool's initializer ran"
    return verify_segment(task, _worker_files)


def _run_in_processes(
    tasks: list[SegmentTask], files: Files, jobs: int, deadline: float | None, progress: Callable[[int], None] | None
) -> Iterator[SegmentResult]:
    """In the order given, so that what is read when somebody stops it is a beginning."""
    import multiprocessing

    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else None
    context = multiprocessing.get_context(method)
    waiting = list(tasks)
    running: list[multiprocessing.pool.AsyncResult[SegmentResult]] = []
    pool = context.Pool(jobs, _start_worker, (files,))
    try:
        while waiting or running:
            while waiting and len(running) < 2 * jobs and not (deadline is not None and time.monotonic() >= deadline):
                running.append(pool.apply_async(_work, (waiting.pop(0),)))
            if not running:
                return
            running[0].wait(_POLL_SECONDS if len(running) > 1 else None)
            for done in [each for each in running if each.ready()]:
                running.remove(done)
                result = done.get()
                if progress is not None:
                    progress(result.task.size)
                yield result
        pool.close()
        pool.join()
    finally:
        pool.terminate()
