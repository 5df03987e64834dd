"""Analyses the collected files: findings of verify, forecasts of a broker's start, and a map of each segment.

The map gives each byte of a `.log` a state: intact, damaged, or `recoverable` (intact, but a broker deletes it when it starts). It also
lists the missing offsets. Segments with a finding, or with bytes that the broker would delete, are scanned again. The others are intact.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from kops.config.values.properties import read_properties
from kops.errors import KopsError
from kops.files import Files
from kops.forensics.findings.finding import Finding
from kops.forensics.forecast.run import Forecast, ForecastOptions, forecast
from kops.forensics.inventory.ls import SegmentRow, partition_rows
from kops.forensics.inventory.tree import PartitionDir, open_paths
from kops.records import Damage, scan

INTACT: Final = "intact"
DAMAGED: Final = "damaged"
RECOVERABLE: Final = "recoverable"
PREALLOCATED: Final = "preallocated"

GAPS: Final = ("offset-gap", "segment-gap", "log-start-missing", "log-end-missing", "segment-empty", "log-file-missing")


@dataclass(slots=True)
class Extent:
    """Adjacent bytes of a segment in one state, and their offsets (None if unknown)."""

    start: int
    end: int
    state: str
    first_offset: int | None = None
    last_offset: int | None = None
    code: str | None = None

    def to_json(self) -> list[Any]:
        """Return the entry of a `kops.evidence-segments/v1` document: `[start, end, state, first offset, last offset, code]`."""
        return [self.start, self.end, self.state, self.first_offset, self.last_offset, self.code]


@dataclass(slots=True)
class Ranges:
    """Sorted, disjoint ranges of offsets (inclusive)."""

    ranges: list[tuple[int, int]] = field(default_factory=list)

    def touches(self, first: int, last: int) -> bool:
        """Whether one of the ranges contains any of the offsets."""
        index = bisect_right(self.ranges, last, key=lambda each: each[0])
        return index > 0 and self.ranges[index - 1][1] >= first


def forecasts(files: Files, paths: Sequence[str], now_ms: int) -> tuple[list[Forecast], list[str]]:
    """Return (forecasts, errors): one forecast for all log directories of a broker, and one for the partitions given alone."""
    inventory = open_paths(paths, files)
    brokers: dict[str, list[str]] = defaultdict(list)
    seen: set[str] = set()
    for log_dir in inventory.log_dirs:
        path = os.path.abspath(log_dir.path)
        broker, directory = _identity(files, path)
        if broker is None or directory in seen:  # a second copy of the same directory
            broker = path
        if directory is not None:
            seen.add(directory)
        brokers[broker].append(path)
    answers: list[Forecast] = []
    errors: list[str] = []
    for chosen in (*brokers.values(), [os.path.abspath(each.path) for each in inventory.loose_partitions]):
        if not chosen:
            continue
        try:
            answers.append(forecast(files, chosen, ForecastOptions(now_ms=now_ms)))
        except (KopsError, OSError) as error:
            errors.append(f"no forecast for {', '.join(chosen)}: {error}")
    return answers, errors


def _identity(files: Files, log_dir: str) -> tuple[str | None, str | None]:
    """Return (broker, directory id) of a log directory from its meta.properties. Each is None if the file does not have it."""
    try:
        meta = read_properties(files.read_all(os.path.join(log_dir, "meta.properties")))
    except (OSError, KopsError):
        return None, None
    node = meta.get("node.id", meta.get("broker.id"))
    return (None if node is None else f"{meta.get('cluster.id')} {node}"), meta.get("directory.id")


def segment_map(files: Files, paths: Sequence[str], findings: Sequence[Finding], answers: Sequence[Forecast]) -> Iterator[dict[str, Any]]:
    """Yield a document for each partition: its segments with their extents, and its missing offsets."""
    by_file: dict[str, list[Finding]] = defaultdict(list)
    by_dir: dict[str, list[Finding]] = defaultdict(list)
    for found in findings:
        by_file[os.path.abspath(found.file)].append(found)
        by_dir[os.path.abspath(found.file)].append(found)
        by_dir[os.path.dirname(os.path.abspath(found.file))].append(found)
    saved = {os.path.abspath(each.dir): Ranges(each.lost_though_intact) for answer in answers for each in answer.partitions}
    for partition in open_paths(paths, files).partitions():
        path = os.path.abspath(partition.path)
        yield {
            "dir": partition.path,
            "name": partition.name,
            "state": partition.state,
            "missing": [
                [found.base_offset, found.last_offset, found.code, found.file]
                for found in by_dir.get(path, ())
                if found.code in GAPS and found.base_offset is not None and found.last_offset is not None
            ],
            "segments": list(_segments(files, partition, by_file, saved.get(path, Ranges()))),
        }


def _segments(files: Files, partition: PartitionDir, by_file: dict[str, list[Finding]], saved: Ranges) -> Iterator[dict[str, Any]]:
    for segment in partition.segments:
        try:
            row = next(partition_rows(files, partition, only=(segment.suffix, segment.base_offset)))
        except (OSError, KopsError) as error:
            row = SegmentRow(partition.path, partition.name, partition.topic, partition.partition, partition.state, segment.state, -1)
            row.flags.append(f"unreadable: {error}")
        log = segment.log
        document: dict[str, Any] = {
            "file": log.path if log is not None else None,
            "base_offset": segment.base_offset,
            "state": segment.state,
            "size": log.size if log is not None else 0,
            "total_size": segment.size,
            "first_offset": row.first_offset,
            "last_offset": row.last_offset,
            "first_timestamp": row.first_timestamp,
            "max_timestamp": row.max_timestamp,
            "flags": row.flags,
        }
        if log is not None:
            found = by_file.get(os.path.abspath(log.path), [])
            try:
                extents = _extents(files, log.path, found, row, Ranges() if segment.suffix else saved)
            except OSError as error:
                extents = [Extent(0, log.size, DAMAGED, code="file-unreadable")]
                row.flags.append(f"unreadable: {error.strerror}")
            document["extents"] = [each.to_json() for each in extents]
        yield document


def _extents(files: Files, path: str, found: list[Finding], row: SegmentRow, saved: Ranges) -> list[Extent]:
    """Return the extents of a segment, in order and without gaps."""
    size = row.size if row.size is not None else files.stat(path).size
    if not size:
        return []
    # At a position with several findings, the most severe one counts.
    graver = sorted(found, key=lambda each: (each.code not in GAPS, each.severity == "error"))
    placed = {each.position: each for each in graver if each.position is not None}
    first = row.first_offset if row.first_offset is not None else row.base_offset
    last = row.last_offset if row.last_offset is not None else (1 << 63) - 1
    if not placed and "damaged" not in row.flags and "bad-index" not in row.flags and not saved.touches(first, last):
        return [Extent(0, size, INTACT, row.first_offset, row.last_offset)]
    result: list[Extent] = []
    with files.open(path) as file:
        for item in scan(file):
            cause = placed.get(item.position)
            if isinstance(item, Damage):
                state = PREALLOCATED if cause is not None and cause.severity == "info" else DAMAGED
                offsets = (cause.base_offset, cause.last_offset) if cause is not None else (None, None)
                _add(result, Extent(item.position, item.end, state, *offsets, cause.code if cause is not None else item.code))
                continue
            state = RECOVERABLE if saved.touches(item.base_offset, item.last_offset) else INTACT
            wrong = cause is not None and cause.severity == "error" and cause.code not in GAPS
            end = item.position + item.size
            _add(
                result,
                Extent(
                    item.position,
                    end,
                    DAMAGED if wrong else state,
                    item.base_offset,
                    item.last_offset,
                    cause.code if wrong and cause is not None else None,
                ),
            )
    return result


def _add(extents: list[Extent], new: Extent) -> None:
    """Append an extent, or extend the last one if it has the same state and the new one has no finding."""
    last = extents[-1] if extents else None
    if last is None or last.state != new.state or new.code is not None or last.code is not None:
        extents.append(new)
        return
    last.end = new.end
    last.last_offset = new.last_offset
