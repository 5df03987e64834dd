"""The result of a comparison of replicas: a row for each replica, the first difference, and findings."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from kops.forensics.findings.finding import Finding, has_problems

__all__ = ["DiffReport", "Divergence", "PartitionDiff", "ReplicaReport", "count_offsets", "joined", "without"]

Range = tuple[int, int]


@dataclass(slots=True)
class ReplicaReport:
    """One replica. Ranges are (first, last), both inclusive. `end_offset` is the offset after its last batch. `missing` are the offsets
    that another replica has and this one lacks or has damaged. `behind` is the part of them that it has not fetched yet. `gone` are those
    damaged here that no replica has. `loses` are the offsets that the cluster loses if this replica becomes the leader, and `committed` is
    how many of them were below the high watermark of a replica that has them."""

    directory: str
    broker: int | None = None
    start_offset: int | None = None
    end_offset: int | None = None
    last_epoch: int = -1
    high_watermark: int | None = None
    batches: int = 0
    bytes: int = 0
    damaged: int = 0
    missing: list[Range] = field(default_factory=list)
    gone: list[Range] = field(default_factory=list)
    behind: list[Range] = field(default_factory=list)
    loses: list[Range] = field(default_factory=list)
    committed: int = 0
    best: bool = False

    @property
    def offsets_lost(self) -> int:
        """The number of offsets in `loses`."""
        return count_offsets(self.loses)

    def to_json(self) -> dict[str, Any]:
        """As in `kops.diff/v1`."""
        return {
            "directory": self.directory,
            "broker": self.broker,
            "start_offset": self.start_offset,
            "end_offset": self.end_offset,
            "last_epoch": self.last_epoch,
            "high_watermark": self.high_watermark,
            "batches": self.batches,
            "bytes": self.bytes,
            "damaged": self.damaged,
            "missing": [list(each) for each in self.missing],
            "behind": [list(each) for each in self.behind],
            "gone": [list(each) for each in self.gone],
            "loses": [list(each) for each in self.loses],
            "offsets_lost": self.offsets_lost,
            "committed_lost": self.committed,
            "best": self.best,
        }


@dataclass(slots=True)
class Divergence:
    """The first offset at which the replicas differ, and why (the code and the detail of a finding)."""

    offset: int
    code: str
    detail: str


@dataclass(slots=True)
class PartitionDiff:
    """The replicas of one partition, compared."""

    topic: str
    partition: int
    replicas: list[ReplicaReport] = field(default_factory=list)
    first_divergence: Divergence | None = None
    lost: list[Range] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)

    @property
    def name(self) -> str:
        """`topic-partition`, or the directory's name."""
        return f"{self.topic}-{self.partition}" if self.partition >= 0 else self.topic

    def to_json(self) -> dict[str, Any]:
        """As in `kops.diff/v1`. `lost`: offsets that no replica has any more."""
        first = self.first_divergence
        return {
            "topic": self.topic,
            "partition": self.partition,
            "first_divergence": None if first is None else {"offset": first.offset, "code": first.code, "detail": first.detail},
            "best": next((each.directory for each in self.replicas if each.best), None),
            "lost": [list(each) for each in self.lost],
            "replicas": [each.to_json() for each in self.replicas],
        }


@dataclass(slots=True)
class DiffReport:
    """All partitions. `alone` are partition directories of which no other directory has a replica. `left_out` are the partitions that were
    not compared because of Ctrl-C."""

    paths: list[str]
    partitions: list[PartitionDiff] = field(default_factory=list)
    alone: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def has_problems(self) -> bool:
        """Whether there is any error or warning."""
        return has_problems(self.findings)

    def to_json(self) -> dict[str, Any]:
        """The document `kops.diff/v1` without its schema."""
        return {
            "paths": self.paths,
            "partitions": [each.to_json() for each in self.partitions],
            "alone": self.alone,
            "left_out": self.left_out,
            "findings": [found.to_json() for found in self.findings],
        }


def count_offsets(ranges: Iterable[Range]) -> int:
    """The number of offsets in these ranges."""
    return sum(last - first + 1 for first, last in ranges)


def joined(ranges: Iterable[Range]) -> list[Range]:
    """The same offsets, sorted, each once, neighbours as one range."""
    result: list[Range] = []
    for low, high in sorted(ranges):
        if low > high:
            continue
        if result and low <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def without(ranges: Iterable[Range], taken: Iterable[Range]) -> list[Range]:
    """Return `ranges` without the offsets of `taken`."""
    cut = joined(taken)
    result: list[Range] = []
    for low, high in joined(ranges):
        for first, last in cut:
            if last < low or first > high:
                continue
            if first > low:
                result.append((low, first - 1))
            low = last + 1
        if low <= high:
            result.append((low, high))
    return result
