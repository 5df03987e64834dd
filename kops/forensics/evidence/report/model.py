"""What the report tells, read from the documents of a case and put in order: damaged partitions first.

The documents are checked against the hashes in the manifest; one that differs is named, and the report says so at its top.
"""

from __future__ import annotations

import hashlib
import os
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from kops.errors import DecodeError
from kops.forensics.evidence.analysis import DAMAGED, RECOVERABLE, Extent
from kops.forensics.evidence.case import (
    FORECAST,
    MANIFEST,
    SEGMENTS,
    SEGMENTS_SCHEMA,
    VERIFY,
    Document,
    open_case,
    parse_document,
    read_file,
    read_manifest,
)
from kops.forensics.evidence.collect import FORECASTS_SCHEMA
from kops.forensics.evidence.report.wording import merged, total
from kops.forensics.evidence.walk import Tree
from kops.forensics.findings.finding import SEVERITIES, Finding, from_json
from kops.forensics.verify.run import SCHEMA as VERIFY_SCHEMA

Range = tuple[int, int]


@dataclass(slots=True, eq=False)
class SegmentView:
    """One segment as in `kops.evidence-segments/v1`."""

    file: str
    base_offset: int
    state: str
    size: int
    first_offset: int | None = None
    last_offset: int | None = None
    first_timestamp: int | None = None
    max_timestamp: int | None = None
    extents: list[Extent] = field(default_factory=list)

    def bytes_of(self, state: str) -> int:
        """How many bytes are in a state."""
        return sum(each.end - each.start for each in self.extents if each.state == state)

    @property
    def is_marked(self) -> bool:
        """Whether something in it is not simply intact."""
        return any(each.state in (DAMAGED, RECOVERABLE) for each in self.extents)


@dataclass(eq=False)
class PartitionView:
    """One partition directory: its segments, missing offsets, findings, and what a start would do with it. `label` is its name, with
    the directory around it where several have that name."""

    dir: str
    name: str
    state: str = ""
    label: str = ""
    segments: list[SegmentView] = field(default_factory=list)
    missing: list[tuple[int, int, str]] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    outcome: str | None = None
    reason: str | None = None
    lost: list[Range] = field(default_factory=list)
    lost_though_intact: list[Range] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Bytes of its logs."""
        return sum(each.size for each in self.segments)

    @cached_property
    def _amounts(self) -> Counter[str]:
        amounts: Counter[str] = Counter()
        for segment in self.segments:
            for each in segment.extents:
                amounts[each.state] += each.end - each.start
        return amounts

    def bytes_of(self, state: str) -> int:
        """How many bytes of its logs are in a state."""
        return self._amounts[state]

    @cached_property
    def problems(self) -> list[Finding]:
        """Errors and warnings."""
        return [each for each in self.findings if each.is_problem]

    @cached_property
    def unreadable(self) -> list[Range]:
        """Offsets that are damaged or missing, by the errors."""
        found = [
            (each.base_offset, each.last_offset)
            for each in self.findings
            if each.severity == "error" and each.base_offset is not None and each.last_offset is not None
        ]
        return merged((first, last) for first, last in found)

    @property
    def is_damaged(self) -> bool:
        """Whether something of it is wrong on disk."""
        return bool(self.problems or self.missing or self.bytes_of(DAMAGED))

    @property
    def is_shown(self) -> bool:
        """Whether the report has a map of it: it is damaged, or a start would lose something of it."""
        return self.is_damaged or bool(self.lost)

    @property
    def weight(self) -> tuple[int, int, int, str]:
        """The order in the report: the worst first."""
        return (-total(self.unreadable) - total(self.lost), -self.bytes_of(DAMAGED), -len(self.problems), self.dir)


@dataclass(slots=True)
class CaseReport:
    """All that the page tells. `altered`: documents of the case that are not as the manifest says."""

    path: str
    manifest: Document
    manifest_sha256: str
    partitions: list[PartitionView] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    brokers: list[tuple[str, str | None]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    altered: list[str] = field(default_factory=list)
    segments: int = 0
    batches: int = 0
    records: int = 0

    @property
    def damaged(self) -> list[PartitionView]:
        """Partitions with a problem, the worst first."""
        return [each for each in self.partitions if each.is_damaged]

    @property
    def shown(self) -> list[PartitionView]:
        """Partitions with a problem or that lose something by a start, the worst first."""
        return [each for each in self.partitions if each.is_shown]

    def replicas(self, partition: PartitionView) -> list[PartitionView]:
        """Other live directories of the same partition in this case."""
        if partition.state:
            return []
        return [each for each in self.partitions if each.name == partition.name and each is not partition and not each.state]

    @property
    def copied(self) -> bool:
        """Whether the case has copies."""
        return bool(self.manifest["mode"] == "copy")


def read_case(path: str) -> CaseReport:
    """Read a case. Raises NotFoundError if there is none, DecodeError if the manifest or a document is malformed."""
    with open_case(path) as tree:
        manifest, digest = read_manifest(tree, path)
        report = CaseReport(os.path.abspath(path), manifest, digest)
        verify = _document(report, tree, VERIFY, VERIFY_SCHEMA)
        forecast = _document(report, tree, FORECAST, FORECASTS_SCHEMA)
        segments = _document(report, tree, SEGMENTS, SEGMENTS_SCHEMA)
    _check_manifest(manifest, os.path.join(path, MANIFEST))
    found = [_finding(each) for each in (*manifest["findings"], *_list(verify, "findings"))]
    report.findings = list({(each.code, each.file, each.position, each.detail): each for each in found}.values())
    report.segments, report.batches, report.records = (_number(verify, key) for key in ("segments", "batches", "records"))
    report.notes = [_text(each) for each in _list(manifest, "warnings")]
    for each in _list(segments, "partitions"):
        report.partitions.append(_partition(each))
    by_dir = {each.dir: each for each in report.partitions}
    for answer in _list(forecast, "forecasts"):
        _forecast(report, answer, by_dir)
    attach(report)
    return report


def attach(report: CaseReport) -> None:
    """Give each partition its findings, and sort the partitions."""
    by_dir: dict[str, list[Finding]] = defaultdict(list)
    for found in report.findings:
        by_dir[found.file].append(found)
        by_dir[os.path.dirname(found.file)].append(found)
    for partition in report.partitions:
        partition.findings = by_dir.get(partition.dir, [])
    names = Counter(each.name for each in report.partitions)
    for partition in report.partitions:
        around = os.path.basename(os.path.dirname(partition.dir))
        partition.label = f"{partition.name} ({around})" if names[partition.name] > 1 else partition.name
    order = {id(each): each.weight for each in report.partitions}
    report.partitions.sort(key=lambda each: order[id(each)])


def _document(report: CaseReport, tree: Tree, name: str, schema: str) -> Document:
    """A document of the case; empty if the collection did not come to it."""
    listed = next((each for each in report.manifest["documents"] if each["path"] == name), None)
    if listed is None:
        return {}
    try:
        data = read_file(tree, name)
    except OSError as error:
        report.altered.append(f"{name}: {error.strerror or error}")
        return {}
    if hashlib.sha256(data).hexdigest() != listed["sha256"]:
        report.altered.append(f"{name}: its SHA-256 is not the one in the manifest")
    return parse_document(data, os.path.join(report.path, name), schema)


def _check_manifest(manifest: Document, file: str) -> None:
    for key in ("started", "finished", "verify_level"):
        if not isinstance(manifest.get(key), str):
            raise DecodeError(f"{key} is missing", file=file)
    for key in ("totals", "tool"):
        if not isinstance(manifest.get(key), dict):
            raise DecodeError(f"{key} is missing", file=file)


def _partition(document: Any) -> PartitionView:
    try:
        segments = [
            SegmentView(
                file=_text(each["file"] or f"{document['dir']}/{each['base_offset']:020d}"),
                base_offset=_integer(each["base_offset"]),
                state=_text(each["state"]),
                size=_integer(each["size"]),
                first_offset=_maybe(each["first_offset"]),
                last_offset=_maybe(each["last_offset"]),
                first_timestamp=_maybe(each["first_timestamp"]),
                max_timestamp=_maybe(each["max_timestamp"]),
                extents=[_extent(*extent) for extent in each.get("extents", ())],
            )
            for each in document["segments"]
        ]
        missing = [(_integer(first), _integer(last), _text(code)) for first, last, code, _ in document["missing"]]
        name = _text(document["name"])
        return PartitionView(_text(document["dir"]), name, _text(document["state"]), name, segments, missing)
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"{SEGMENTS}: a partition is malformed: {error!r}") from error


def _extent(start: Any, end: Any, state: Any, first: Any, last: Any, code: Any) -> Extent:
    return Extent(_integer(start), _integer(end), _text(state), _maybe(first), _maybe(last), None if code is None else _text(code))


def _forecast(report: CaseReport, answer: Any, by_dir: dict[str, PartitionView]) -> None:
    try:
        broker = answer["broker"]
        if broker["outcome"] is not None:
            report.brokers.append((_text(broker["outcome"]), None if broker["reason"] is None else _text(broker["reason"])))
        report.notes += [_text(each) for each in answer["warnings"]]
        for each in answer["partitions"]:
            partition = by_dir.get(each["dir"])
            if partition is None:
                continue
            partition.outcome = _text(each["outcome"])
            partition.reason = None if each["reason"] is None else _text(each["reason"])
            partition.lost = [(_integer(first), _integer(last)) for first, last in each["lost"]]
            partition.lost_though_intact = [(_integer(first), _integer(last)) for first, last in each["lost_though_intact"]]
    except (KeyError, TypeError, ValueError) as error:
        raise DecodeError(f"{FORECAST}: a forecast is malformed: {error!r}") from error


def _finding(document: Any) -> Finding:
    try:
        found = from_json(document)
        for key in ("code", "file", "detail", "fix"):
            _text(getattr(found, key))
        for key in ("position", "length", "base_offset", "last_offset", "records"):
            _maybe(getattr(found, key))
        if found.severity not in SEVERITIES:
            raise TypeError(f"severity {found.severity!r}")
    except TypeError as error:
        raise DecodeError(f"a finding is malformed: {error}") from error
    return found


def _list(document: Document, key: str) -> list[Any]:
    found = document.get(key, [])
    if not isinstance(found, list):
        raise DecodeError(f"{key} has to be a list")
    return found


def _number(document: Document, key: str) -> int:
    found = document.get(key, 0)
    if not isinstance(found, int):
        raise DecodeError(f"{key} has to be a number")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not text")
    return value


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a number")
    return value


def _maybe(value: Any) -> int | None:
    return None if value is None else _integer(value)
