"""Recovers one partition: reads, merges and judges all its copies, then writes the result. This is the unit of work of `kops log recover`
and of a task of `kops scan recover`.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from kops.files import Files
from kops.forensics.plans.items import Bad
from kops.forensics.recover.copies.disk import PatientFiles
from kops.forensics.recover.copies.evidence import Evidence, joined
from kops.forensics.recover.copies.merge import LIVE, Conflict, Copy, merge
from kops.forensics.recover.copies.runs import Reading, Run, Salvage, Source, append_run, join_readings, missing, read_copy
from kops.forensics.recover.report import RecoveredPartition

__all__ = ["Job", "Known", "Salvaged", "salvage", "salvage_partition"]

OnBytes = Callable[[int], None]


@dataclass(slots=True)
class Job:
    """One partition: its copies, best first, the evidence in other files, and the bytes of its partition.metadata.

    It has plain values only, so that it can be sent to another process. `size` is the number of bytes to read.
    """

    name: str
    topic: str
    partition: int
    sources: list[Source] = field(default_factory=list)
    beside: list[Evidence] = field(default_factory=list)
    metadata: bytes | None = None
    size: int = 0


@dataclass(slots=True)
class Known:
    """What was found in all parts of a partition's files, by copy, and the step at which runs end (`append_item`)."""

    readings: list[list[Reading]]
    step: int


@dataclass(slots=True)
class Salvaged:
    """The result for one partition: runs by offset from all copies, the places that are unreadable in all of them, and their conflicts.

    `lost`: offsets that a copy is known to have held, but that none has now.
    """

    runs: list[Run]
    copies: list[Copy]
    bad: list[Bad]
    lost: list[tuple[int, int]]
    notes: list[str]
    conflicts: list[Conflict]
    compacted: bool


def salvage(files: Files, sources: Sequence[Source], on_bytes: OnBytes | None = None, known: Known | None = None) -> Salvaged:
    """Salvage all intact batches of one partition; the first copy is the best one. Raises OSError if a file cannot be read at all."""
    if known is None:
        parts = [read_copy(files, source, on_bytes) for source in sources]
    else:
        parts = [join_readings(files, source, each, known.step) for source, each in zip(sources, known.readings, strict=True)]
    copies = [Copy(source.kind, _name(source), part.runs) for source, part in zip(sources, parts, strict=True)]
    notes = [note for part in parts for note in part.notes]
    conflicts: list[Conflict] = []
    runs = parts[0].runs if parts else []
    if len(copies) > 1:
        merged = merge(files, copies)
        runs, conflicts = merged.runs, merged.conflicts
        notes += merged.notes
    if known is not None:
        runs = _rejoined(runs)
    compacted = any(part.compacted for part in parts)
    notes += _origins(sources, parts, runs, compacted=compacted)
    lost = missing(runs, [hole for part in parts for hole in part.lost])
    return Salvaged(runs, copies, [bad for part in parts for bad in part.bad], lost, notes, conflicts, compacted)


def _rejoined(runs: Sequence[Run]) -> list[Run]:
    """The same batches in as few runs as there are without a step."""
    found: list[Run] = []
    for run in runs:
        append_run(found, replace(run))
    return found


def _name(source: Source) -> str:
    folder = posixpath.dirname(source.paths[0])
    return folder if source.kind == LIVE else f"{folder} ({source.kind})"


def _origins(sources: Sequence[Source], parts: Sequence[Salvage], runs: Sequence[Run], *, compacted: bool) -> Iterator[str]:
    """Return notes about batches from other copies that the first one should have, but lacks. A replica that is behind, or keeps its
    segments for a shorter time, is healthy.
    """
    if not parts or len(parts) == 1:
        return
    first = parts[0]
    owners = {path: number for number, source in enumerate(sources) for path in source.paths}
    begin, end = (first.runs[0].base, first.runs[-1].last) if first.runs else (0, -1)
    taken: dict[int, int] = {}
    for run in runs:
        number = owners[run.path]
        is_inside = begin < run.base < end and not compacted
        if number and (first.bad or is_inside or sources[number].kind != LIVE):
            taken[number] = taken.get(number, 0) + run.batches
    for number, count in sorted(taken.items()):
        yield f"{count} batches come from {sources[number].kind} ({sources[number].paths[0]})"


def salvage_partition(
    files: PatientFiles, job: Job, on_bytes: OnBytes | None = None, known: Known | None = None
) -> tuple[RecoveredPartition, list[Run]]:
    """Return the row of a partition as far as it is known before anything is written, and the runs to write.

    `known`: what was found in its files. Only what copies disagree about is read again.
    """
    entry = RecoveredPartition(job.name, "", [path for source in job.sources for path in source.paths])
    files.sealed = False
    for reading in (reading for each in known.readings for reading in each) if known is not None else ():
        files.remember(reading.path, reading.gone)
    found = salvage(files, job.sources, on_bytes, known)
    files.sealed = True
    entry.damaged = [
        {"file": bad.path, "position": bad.position, "length": bad.length, "code": bad.code, "reason": bad.reason} for bad in found.bad
    ]
    own = [run for copy in found.copies for run in copy.runs]
    held = joined(known for beside in job.beside for known in beside.held(files, own, compacted=found.compacted))
    gone = missing(found.runs, held)
    if held and gone != held:
        found.notes.append("a copy lacks offsets that it is known to have held; others have them")
    entry.lost = joined(missing(found.runs, [*found.lost, *held]))
    entry.notes, entry.compacted, entry.conflicts = found.notes, found.compacted, found.conflicts
    entry.gaps = list(_gaps(found.runs))
    return entry, found.runs


def _gaps(runs: Sequence[Run]) -> Iterator[tuple[int, int]]:
    before = None
    for run in runs:
        if before is not None and run.base > before + 1:
            yield before + 1, run.base - 1
        before = run.last
