"""Carving: finds batches in files of unknown contents, and writes them as partition directories that `kops log verify` and Kafka open.

    report = carve(["/dev/sdb"], "/rescue", topic_hint="orders-0")

An image is read once, from front to back (`kops.forensics.carve.fragments`). The progress is saved every 256 MiB, so that a run can be
continued. Then the fragments are sorted into logs (`kops.forensics.carve.grouping`), and each log is written as `kops log recover` writes
one. The images are only read. Names in the output come from the caller or are made here, never from the images.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import posixpath
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from kops.config.values.topic_names import check_topic_name
from kops.errors import ApiError, DecodeError, NotFoundError, UsageError
from kops.files import File, Files, Mode, OsFiles
from kops.files.forwarding import ForwardingFile
from kops.forensics.carve.fragments import Fragment, Scan, identity
from kops.forensics.carve.grouping import Log, group
from kops.forensics.carve.search import Look
from kops.forensics.carve.state import SCHEMA, Progress, State
from kops.forensics.plans.plan import PlannedFiles
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.runs import Run
from kops.forensics.recover.output import make_out, refuse_overlap
from kops.forensics.recover.report import RecoveredPartition, RecoverReport
from kops.forensics.recover.write import remove_tree, write_partition
from kops.records import Batch, scan
from kops.storage.formats.names import parse_partition_dir

__all__ = [
    "FRAGMENTS_FILE",
    "SCHEMA",
    "CarveReport",
    "ImageFiles",
    "PlannedLog",
    "carve",
    "checked_hint",
    "checked_image",
    "checked_look",
    "plan_logs",
    "prepare",
    "size_of",
    "write_fragments",
]

FRAGMENTS_FILE: Final = "kops-carve.fragments.jsonl"
CHECKPOINT_BYTES: Final = 256 << 20
LARGEST_RUN: Final = 1 << 30
"""A larger fragment is written as several segments. Kafka's own have a GiB by default, and can't have more than 2 GiB."""
_OWN_NAME: Final = "carved"


@dataclass(slots=True)
class CarveReport:
    """The result: logs, largest first, and counts. `nested` counts batches in values of others, `damaged` those that were not intact."""

    out: str
    bytes: int = 0
    fragments: int = 0
    copies: int = 0
    nested: int = 0
    damaged: int = 0
    unreadable: list[tuple[str, int, int]] = field(default_factory=list)
    logs: list[RecoveredPartition] = field(default_factory=list)
    interrupted: bool = False

    @property
    def failed(self) -> bool:
        """Whether a log could not be written."""
        return any(log.failure is not None for log in self.logs)

    @property
    def batches(self) -> int:
        """The number of batches in all logs."""
        return sum(log.batches for log in self.logs)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.carve/v1` without its schema."""
        return {
            "out": self.out,
            "bytes": self.bytes,
            "fragments": self.fragments,
            "copies": self.copies,
            "nested": self.nested,
            "damaged": self.damaged,
            "unreadable": [{"image": image, "position": start, "length": end - start} for image, start, end in self.unreadable],
            "interrupted": self.interrupted,
            "logs": [
                {
                    "log": log.name,
                    "output": log.output,
                    "batches": log.batches,
                    "records": log.records,
                    "bytes": log.bytes,
                    "first_offset": log.first_offset,
                    "last_offset": log.last_offset,
                    "gaps": [list(each) for each in log.gaps],
                    "fragments": len(log.sources),
                    "notes": log.notes,
                    "failure": log.failure,
                }
                for log in self.logs
            ],
        }


class ImageFiles(PlannedFiles):
    """`base`, for reading only. The size of a device is the position of its end, because its status has no size."""

    def open(self, path: str, mode: Mode = "r") -> File:
        return Image(super().open(path, mode))


class Image(ForwardingFile):
    """One file or device."""

    __slots__ = ("_size",)

    def __init__(self, base: File) -> None:
        super().__init__(base)
        self._size = base.size()
        if not self._size:
            with contextlib.suppress(OSError):  # A pipe has no position of its end.
                self._size = os.lseek(base.fileno(), 0, os.SEEK_END)

    def size(self) -> int:
        return self._size

    def read(self, position: int, size: int) -> bytes:
        return self._base.read(position, min(size, max(self._size - position, 0)))


def carve(
    images: Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    *,
    topic_hint: str | None = None,
    min_magic: int = 0,
    large_offsets: bool = False,
    resume: bool = False,
    force: bool = False,
    files: Files | None = None,
    out_files: Files | None = None,
    on_bytes: Callable[[int], None] | None = None,
    on_total: Callable[[int], None] | None = None,
) -> CarveReport:
    """Find every intact batch in `images`, and write the logs made of them below `out`.

    `topic_hint`: `topic-partition`; everything is of this partition. `min_magic`: the oldest format that is looked for. `large_offsets`:
    look for v2 batches at offsets of 2^48 and more, too. `resume`: continue an earlier run. Raises NotFoundError, UsageError and OSError.
    On KeyboardInterrupt the state is saved and the batches found so far are written; a second one leaves the state alone.
    """
    reader = PatientFiles(ImageFiles(files if files is not None else OsFiles(read_only=True)))
    writer = out_files if out_files is not None else OsFiles()
    target = writer.absolute(os.fspath(out))
    hint = checked_hint(topic_hint)
    look = checked_look(min_magic, large_offsets)
    paths = [checked_image(reader, os.fspath(path), target) for path in images]
    sizes = {path: size_of(reader, path) for path in paths}
    state, found = prepare(writer, target, paths, sizes, look, hint, resume=resume, force=force)
    if on_total is not None:
        on_total(sum(each.size - each.position for each in state.images))
    report = CarveReport(target)
    try:
        for image in state.images:
            _read_image(reader, writer, state, image, found, on_bytes)
    except KeyboardInterrupt:
        report.interrupted = True
    reader.sealed = True
    _write_logs(reader, writer, state, found, report, hint)
    return report


def checked_hint(hint: str | None) -> str | None:
    """The topic and partition of --topic-hint. Raises UsageError."""
    if hint is None:
        return None
    try:
        parsed = parse_partition_dir(hint)
        check_topic_name(parsed.topic)
    except (DecodeError, ApiError) as error:
        raise UsageError(f"--topic-hint {hint}: not a topic and a partition, such as orders-0 ({error})") from error
    if parsed.state or parsed.partition < 0:
        raise UsageError(f"--topic-hint {hint}: not a topic and a partition, such as orders-0")
    return f"{parsed.topic}-{parsed.partition}"


def checked_look(min_magic: int, large_offsets: bool) -> Look:
    """What is looked for. Raises UsageError."""
    if min_magic not in (0, 1, 2):
        raise UsageError(f"--min-magic {min_magic}: must be 0, 1 or 2")
    return Look(min_magic, large_offsets)


def checked_image(files: Files, path: str, target: str) -> str:
    """The absolute path of an image. Raises NotFoundError and UsageError."""
    if not files.exists(path):
        raise NotFoundError(f"{path}: there is no such file")
    if files.stat(path).is_dir:
        raise UsageError(f"{path}: is a directory; name an image, a device or a file (kops log recover reads directories)")
    refuse_overlap(files, [path], target)
    return files.absolute(path)


def size_of(files: Files, path: str) -> int:
    """The size of an image."""
    with files.open(path) as file:
        return file.size()


def prepare(
    files: Files, target: str, paths: list[str], sizes: dict[str, int], look: Look, hint: str | None, *, resume: bool, force: bool
) -> tuple[State, list[Fragment]]:
    """Make the directory, or read the state of an earlier run in it."""
    if resume:
        state, found = State.load(files, target)
        if [each.image for each in state.images] != paths or state.look != look:
            earlier = ", ".join(each.image for each in state.images)
            raise UsageError(f"--out {target}: the earlier run read {earlier}; resume it with the same images and options")
        for each in state.images:
            if each.size != sizes[each.image]:
                raise UsageError(f"{each.image}: had {each.size} bytes when the earlier run began, has {sizes[each.image]} now")
        make_out(files, target, may_have_files=True)
        return state, found
    if hint is not None and files.exists(posixpath.join(target, hint)):
        raise UsageError(f"--topic-hint {hint}: {target} has such a directory, which is not replaced; choose another --out or remove it")
    make_out(files, target, may_have_files=force)
    state = State(target, look, [Progress(path, sizes[path]) for path in dict.fromkeys(paths)])
    state.save(files, [])
    return state, []


def _read_image(
    reader: PatientFiles, writer: Files, state: State, image: Progress, found: list[Fragment], on_bytes: Callable[[int], None] | None
) -> None:
    """Find the fragments of one image from where an earlier run stopped."""
    if image.position >= image.size:
        return
    with reader.open(image.image) as file:
        scanned = Scan(image.image, file, image.position, image.last, look=state.look, on_bytes=on_bytes)
        before = replace(image)

        def save() -> None:
            image.unreadable = sorted({*before.unreadable, *reader.unreadable(image.image, 0, image.size)})
            _save(writer, state, image, scanned, found, before)

        try:
            for done in scanned.windows():
                if done.position - image.position >= CHECKPOINT_BYTES:
                    save()
        finally:
            save()
        if image.position < image.size:  # It became shorter.
            image.unreadable.append((image.position, image.size))


def _save(files: Files, state: State, image: Progress, scanned: Scan, found: list[Fragment], before: Progress) -> None:
    """Save the progress of the scan. A fragment that is saved twice, because of an interruption here, counts once."""
    done = scanned.done
    image.position, image.last = done.position, done.last
    image.nested, image.damaged = before.nested + done.nested, before.damaged + done.damaged
    image.proved = sorted({*before.proved, *done.proved})
    state.save(files, done.closed)
    found.extend(done.closed)
    scanned.done = replace(done, closed=[])


def _write_logs(reader: PatientFiles, writer: Files, state: State, found: list[Fragment], report: CarveReport, hint: str | None) -> None:
    """Sort the fragments into logs and write each."""
    for name in state.logs:
        path = posixpath.join(state.out, name)
        if writer.exists(path):
            remove_tree(writer, path)
    planned = plan_logs(reader, writer, state, found, report, hint)
    as_recovered = RecoverReport(state.out, "segment", False)
    try:
        for each in planned:
            is_undisturbed = write_partition(reader, writer, as_recovered, each.entry, each.runs, None)
            report.logs.append(each.entry)
            if not (each.entry.complete and is_undisturbed):
                report.interrupted = True
                break
    except KeyboardInterrupt:
        report.interrupted = True
    write_fragments(writer, state, planned)


class PlannedLog(NamedTuple):
    """A log to write: its row as far as it is known, and the ranges of the images that it consists of."""

    entry: RecoveredPartition
    runs: list[Run]
    log: Log


def plan_logs(
    reader: Files, writer: Files, state: State, found: list[Fragment], report: CarveReport, hint: str | None, own: Collection[str] = ()
) -> list[PlannedLog]:
    """Sort the fragments into logs, and fill in what the report says of the images. The names of the logs are saved in the state.

    `own`: directories that may be there, because an earlier run has written them.
    """
    proved = {image.image: set(image.proved) for image in state.images}
    every = _all(state, found)
    logs = group(
        every,
        lambda fragment: _items(reader, fragment),
        lambda fragment: fragment.inside in proved[fragment.image] and fragment.inside > 0,
        one_partition=hint is not None,
    )
    names = _names(logs, hint, lambda name: name not in own and writer.exists(posixpath.join(state.out, name)))
    state.logs = names
    state.save(writer, [])
    report.bytes = sum(image.position for image in state.images)
    report.nested, report.damaged = (sum(getattr(image, key) for image in state.images) for key in ("nested", "damaged"))
    report.fragments = len(every)
    report.copies = sum(len(log.copies) for log in logs)
    for image in state.images:
        report.unreadable += [(image.image, low, high) for low, high in image.unreadable]
    return [_planned(reader, name, log) for name, log in zip(names, logs, strict=True)]


def _planned(files: Files, name: str, log: Log) -> PlannedLog:
    runs = [_run(piece.fragment, piece.start, piece.base) for piece in log.pieces]
    entry = RecoveredPartition(name, "", [piece.fragment.image for piece in log.pieces])
    entry.gaps = [(one.last + 1, two.base - 1) for one, two in itertools.pairwise(runs) if two.base > one.last + 1]
    if log.is_inside:
        entry.notes.append("these batches are inside a damaged one, so they may be a record's value")
    return PlannedLog(entry, [part for run in runs for part in _parts(files, run)], log)


def _parts(files: Files, run: Run) -> Iterator[Run]:
    """Yield a run in parts that each fit into a segment: several segments of a log may lie one after the other on a disk."""
    if run.size <= LARGEST_RUN:
        yield run
        return
    part: Run | None = None
    with files.open(run.path) as file:
        for found in scan(file, run.start, run.end, check_crc=False):
            if not isinstance(found, Batch):
                continue
            end = found.position + found.size
            if part is not None and end - part.start > LARGEST_RUN:
                yield part
                part = None
            if part is None:
                part = Run(run.path, found.position, end, run.base if found.position == run.start else found.read_base_offset(), -1, 0)
            part.end, part.last, part.batches = end, found.last_offset, part.batches + 1
    if part is not None:
        yield part


def write_fragments(writer: Files, state: State, planned: Sequence[PlannedLog]) -> None:
    """Write the list of all fragments, with their places in the images and in the logs."""
    writer.write_atomic(posixpath.join(state.out, FRAGMENTS_FILE), b"".join(_lines(planned)))


def _all(state: State, found: Sequence[Fragment]) -> list[Fragment]:
    """Return every fragment once, including those that may continue where an image was left."""
    every = [*found, *(image.last for image in state.images if image.last is not None)]
    return list({(each.image, each.start): each for each in sorted(every, key=lambda each: each.end)}.values())


def _run(fragment: Fragment, start: int, base: int) -> Run:
    return Run(fragment.image, start, fragment.end, base, fragment.last, fragment.batches)


def _items(files: Files, fragment: Fragment) -> Iterator[tuple[int, int, int, int]]:
    with files.open(fragment.image) as file:
        for found in scan(file, fragment.start, fragment.end, check_crc=False):
            if isinstance(found, Batch):
                yield found.base_offset, found.last_offset, identity(found), found.position


def _names(logs: Sequence[Log], hint: str | None, is_taken: Callable[[str], bool]) -> list[str]:
    """Return a directory name for each log: the hint for the largest, numbers for the others."""
    names: list[str] = []
    number = 0
    for log in logs:
        if hint is not None and not names and not log.is_inside:
            names.append(hint)
            continue
        while f"{_OWN_NAME}-{number}" == hint or is_taken(f"{_OWN_NAME}-{number}"):
            number += 1
        names.append(f"{_OWN_NAME}-{number}")
        number += 1
    return names


def _lines(planned: Sequence[PlannedLog]) -> Iterator[bytes]:
    """Yield one line for each fragment: where it was found, and where it was written."""
    for entry, _, log in planned:
        name = entry.name
        rows = [(piece.fragment, {"log": name, "state": "kept", "from_offset": piece.base, "joined_by": piece.why}) for piece in log.pieces]
        rows += [
            (fragment, {"log": name, "state": "copy", "from_offset": None, "joined_by": "the same batches"}) for fragment in log.copies
        ]
        for fragment, more in rows:
            known = fragment.to_json()
            for key in ("digest", "first_crc", "inside"):
                del known[key]
            yield json.dumps({"schema": "kops.fragment/v1", **more, **known}, separators=(",", ":")).encode() + b"\n"
