"""`kops scan carve`: the carving of `kops log carve` for large or many images, divided among tasks.

1. Tasks read ranges of the images (`kops.forensics.carve.ranges`). Each result is also a file in the output directory, for `--resume`.
2. The driver joins them. Ranges that do not fit to what was found before them are read again, from that.
3. The driver sorts the fragments into logs, as `kops log carve` does.
4. Each log is written by a task. A log that is much larger than others is written by several, segment by segment.

The output is that of `kops log carve`, byte for byte. A task may fail and run again, or run twice at the same time: what it writes has a
name of its own until it is complete (`kops.forensics.recover.task`). In a store `_SUCCESS` comes last, if no log failed.
"""

from __future__ import annotations

import json
import posixpath
import uuid
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops.files import Files
from kops.files.any_files import AnyFiles
from kops.files.urls import absolute_path, is_url, plain_path, plain_paths
from kops.forensics.carve.fragments import Fragment
from kops.forensics.carve.ranges import Chain, Found, Range, read_range, split_image
from kops.forensics.carve.run import (
    CarveReport,
    ImageFiles,
    PlannedLog,
    checked_hint,
    checked_image,
    checked_look,
    plan_logs,
    prepare,
    size_of,
    write_fragments,
)
from kops.forensics.carve.search import Look
from kops.forensics.carve.state import State
from kops.forensics.inventory.replicas import expand
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.runs import Run, Source
from kops.forensics.recover.partition import Job
from kops.forensics.recover.pieces import Merged, Piece, PieceResult, finish_partition, write_piece
from kops.forensics.recover.report import RecoveredPartition
from kops.forensics.recover.task import Order, begin_results, end_results, recover_partition, results_so_far
from kops.forensics.recover.write import Segment, output_path, remove_left, segments_of
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.tasks import answers_of, frame_from, most_bytes, parallelism, size_of_parts
from kops.spark.packed import cut
from kops.spark.stores.reading import driver_files, output_files, task_files
from kops.spark.stores.rows import SUCCESS, succeed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RANGES: Final = "kops-carve.ranges"
"""The directory of what was found in ranges, until the state has all of it."""
COLUMNS: Final = {
    "log": "string",
    "output": "string",
    "batches": "bigint",
    "records": "bigint",
    "bytes": "bigint",
    "first_offset": "bigint",
    "last_offset": "bigint",
    "gaps": "array<struct<first: bigint, last: bigint>>",
    "fragments": "int",
    "notes": "array<string>",
    "failure": "string",
}
"""The columns of `carve`, and their types."""
_TASKS_A_CORE: Final = 4
_Seen = dict[str, tuple[int, int]]


class _Images(NamedTuple):
    """The images, what is looked for, and where to write. `seen`: sizes and times of the images when the work was planned."""

    out: str
    look: Look
    seen: _Seen

    def files(self) -> AnyFiles:
        """The files of a task."""
        files = task_files()
        files.expect(self.seen)
        return files


def scan_carve(
    spark: SparkSession,
    images: Sequence[str | PathLike[str]],
    out: str | PathLike[str],
    *,
    topic_hint: str | None = None,
    min_magic: int = 0,
    large_offsets: bool = False,
    resume: bool = False,
    force: bool = False,
    task_bytes: int = TASK_BYTES,
) -> CarveReport:
    """Find every intact batch in `images`, and write the logs made of them below `out`.

    The options are those of `kops.forensics.carve.run.carve`. `out` may be a URL. Raises NotFoundError, UsageError, OSError, and KopsError
    for a range that can't be read. If a log can't be written, its row has the reason (`failure`), and `resume` writes it again.
    """
    target = absolute_path(plain_path(out))
    hint, look = checked_hint(topic_hint), checked_look(min_magic, large_offsets)
    given = driver_files()
    reader = PatientFiles(ImageFiles(given))
    paths = [checked_image(reader, absolute_path(path), target) for path in expand(plain_paths(images), given)]
    sizes = {path: size_of(reader, path) for path in paths}
    work = _Images(target, look, {path: (sizes[path], given.stat(path).mtime_ms) for path in paths if is_url(path)})
    report = CarveReport(target)
    with output_files(target) as out_files:
        state, found = prepare(out_files, target, paths, sizes, look, hint, resume=resume, force=force)
        remove_left(out_files, posixpath.join(target, SUCCESS))
        if any(each.position < each.size for each in state.images):
            found = _read(spark, work, state, out_files, resume=resume, task_bytes=task_bytes)
        reader.sealed = True
        _write(spark, work, reader, state, found, report, out_files, hint=hint, resume=resume, task_bytes=task_bytes)
    return report


def _read(spark: SparkSession, work: _Images, state: State, out_files: Files, *, resume: bool, task_bytes: int) -> list[Fragment]:
    """Read all images in ranges, and save the state after it."""
    folder = posixpath.join(work.out, RANGES)
    if not resume:
        remove_left(out_files, folder)
    if not out_files.exists(folder):
        out_files.mkdir(folder)
    size = size_of_parts((each.size for each in state.images), parallelism(spark), task_bytes)
    chains = [Chain(list(split_image(each.image, each.size, size))) for each in state.images]
    results = [[_earlier(out_files, folder, each) if resume else None for each in chain.ranges] for chain in chains]
    places = [(a, b) for a, some in enumerate(results) for b, one in enumerate(some) if one is None]
    wanted = [chains[a].ranges[b] for a, b in places]
    what = "searches images"
    while True:
        tasks = cut(wanted, lambda each: each.end - each.start, parallelism(spark), task_bytes)
        for (a, b), one in zip(places, answers_of(spark, tasks, partial(_search, work=work), what), strict=True):
            results[a][b] = one
        misfits = [chain.add(some) for chain, some in zip(chains, results, strict=True)]
        places = [(a, b) for a, b in enumerate(misfits) if b is not None]
        if not places:
            break
        wanted = [chains[a].again() for a, _ in places]
        what = "searches ranges again"
    found: list[Fragment] = []
    state.images = [chain.progress(each.image, each.size) for chain, each in zip(chains, state.images, strict=True)]
    for chain in chains:
        found += chain.found
    state.listed = 0
    state.save(out_files, found)
    remove_left(out_files, folder)
    return found


def _search(work_range: Range, *, work: _Images) -> Found:
    """Runs in a task."""
    found = read_range(PatientFiles(ImageFiles(work.files())), work_range, work.look)
    with output_files(work.out) as out_files:
        path = _path(posixpath.join(work.out, RANGES), work_range)
        temporary = f"{path}.{uuid.uuid4().hex}"
        with out_files.open(temporary, "new") as file:
            file.write(0, json.dumps({"range": _key(work_range), **found.to_json()}, separators=(",", ":")).encode())
            file.sync()
        out_files.rename(temporary, path)
    return found


def _key(one: Range) -> list[Any]:
    return [one.image, one.size, one.start, one.end]


def _path(folder: str, one: Range) -> str:
    """The file of a range. Its name has no part of the image's."""
    return posixpath.join(folder, f"{uuid.uuid5(uuid.NAMESPACE_URL, one.image).hex}-{one.start}.json")


def _earlier(files: Files, folder: str, one: Range) -> Found | None:
    """What an earlier run has found in a range, if it divided the image in the same way."""
    path = _path(folder, one)
    if not files.exists(path):
        return None
    try:
        row = json.loads(files.read_all(path))
        return Found.from_json(row) if row.pop("range") == _key(one) else None
    except (ValueError, KeyError, TypeError):
        return None  # It is read again.


class _Log(NamedTuple):
    """A log to write. `job` has its name and images, `pieces` its segments, if tasks have written them already."""

    job: Job
    entry: RecoveredPartition
    segments: list[Segment]
    pieces: list[PieceResult] | None = None

    @property
    def runs(self) -> list[Run]:
        """What the log consists of."""
        return [run for segment in self.segments for run in segment.runs]


def _write(
    spark: SparkSession,
    work: _Images,
    reader: PatientFiles,
    state: State,
    found: list[Fragment],
    report: CarveReport,
    out_files: Files,
    *,
    hint: str | None,
    resume: bool,
    task_bytes: int,
) -> None:
    """Sort the fragments into logs, and let tasks write them."""
    order = Order(work.out, "segment")
    earlier = list(state.logs)
    planned = plan_logs(reader, out_files, state, found, report, hint, earlier)
    for name in set(earlier) - set(state.logs):
        remove_left(out_files, posixpath.join(work.out, name))
    so_far = results_so_far(out_files, order) if resume else {}
    done = {each.entry.name: so_far[each.entry.name] for each in planned if _is_done(each, so_far.get(each.entry.name))}
    begin_results(out_files, order, state.logs, done)
    logs = [_log(order, each) for each in planned if each.entry.name not in done]
    entries = {**done, **{entry.name: entry for entry in _written(spark, work, order, logs, task_bytes)}}
    report.logs = [entries[each.entry.name] for each in planned]
    write_fragments(out_files, state, planned)
    if not report.failed:  # Else `resume` needs the results.
        end_results(out_files, order)
        if is_url(work.out):
            succeed(out_files, work.out)


def _is_done(planned: PlannedLog, known: RecoveredPartition | None) -> bool:
    """Whether an earlier run has written this log, not another one of its name."""
    if known is None or (known.sources, known.gaps) != (planned.entry.sources, planned.entry.gaps):
        return False
    return (known.first_offset, known.last_offset) == (planned.runs[0].base, planned.runs[-1].last)


def _log(order: Order, planned: PlannedLog) -> _Log:
    name = planned.entry.name
    planned.entry.output = output_path(order.report(), name)
    topic, _, partition = name.rpartition("-")
    images = list(dict.fromkeys(planned.entry.sources))
    job = Job(name, topic, int(partition), [Source("log", images)], size=sum(run.size for run in planned.runs))
    return _Log(job, planned.entry, list(segments_of(planned.runs)))


def _written(spark: SparkSession, work: _Images, order: Order, logs: list[_Log], task_bytes: int) -> list[RecoveredPartition]:
    run = uuid.uuid4().hex
    most = most_bytes((each.job.size for each in logs), parallelism(spark), task_bytes)
    large = [each for each in logs if each.job.size > most and len(each.segments) > 1]
    pieces = [Piece(each.job.name, segment, {}, run) for each in large for segment in each.segments]
    found: dict[str, list[PieceResult]] = {each.job.name: [] for each in large}
    tasks = cut(pieces, lambda each: each.segment.size, _TASKS_A_CORE * parallelism(spark), task_bytes)
    for result in answers_of(spark, tasks, partial(_write_piece, order=order, work=work), "writes segments of large logs"):
        found[result.row.name].append(result)
    rest = [each._replace(pieces=found.get(each.job.name)) for each in logs]
    whole = cut(rest, lambda each: 0 if each.pieces is not None else each.job.size, _TASKS_A_CORE * parallelism(spark), task_bytes)
    return list(answers_of(spark, whole, partial(_write_log, order=order, work=work, run=run), "writes logs"))


def _write_piece(piece: Piece, *, order: Order, work: _Images) -> PieceResult:
    """Runs in a task."""
    with output_files(order.out) as out_files:
        return write_piece(work.files(), out_files, order, piece, uuid.uuid4().hex)


def _write_log(log: _Log, *, order: Order, work: _Images, run: str) -> RecoveredPartition:
    """Runs in a task."""
    attempt = uuid.uuid4().hex
    with output_files(order.out) as out_files:
        if log.pieces is not None:
            merged = Merged(log.entry, log.segments)
            return finish_partition(work.files(), out_files, order, log.job, merged, log.pieces, run, attempt)
        return recover_partition(work.files(), out_files, order, log.job, attempt, (log.entry, log.runs))


def carve(
    spark: SparkSession, images: str | PathLike[str] | Sequence[str | PathLike[str]], out: str | PathLike[str], **options: Any
) -> DataFrame:
    """Carve images. Returns a row for each log (`COLUMNS`). `options` are those of `scan_carve`."""
    several = [images] if isinstance(images, (str, PathLike)) else list(images)
    rows = scan_carve(spark, several, out, **options).to_json()["logs"]
    return frame_from(spark, [{**row, "gaps": [{"first": a, "last": b} for a, b in row["gaps"]]} for row in rows], COLUMNS)
