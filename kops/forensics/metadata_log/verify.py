"""`kops log meta verify`: whether the metadata log can be replayed, and whether each snapshot is what the log says.

Sources: Kafka's `MetadataLoader` (what a node does with its log and its newest snapshot) and `ReplicationControlManager` (the leader of a
partition is in its ISR, and the ISR is among its replicas).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kops.forensics.findings.finding import Finding, finding, sort_findings
from kops.forensics.metadata_log.compare import Difference, compare
from kops.forensics.metadata_log.replay import CONTRADICTION, UNREADABLE, Fault, Replayed, extend, read_snapshot, replay
from kops.forensics.metadata_log.tree import tree
from kops.forensics.verify.run import verify

if TYPE_CHECKING:
    from kops.files import Files
    from kops.forensics.inventory.tree import FileEntry
    from kops.forensics.metadata_log.source import MetadataSource
    from kops.metadata.image.metadata_image import MetadataImage

_CODES = {UNREADABLE: "metadata-record-unreadable", CONTRADICTION: "metadata-record-contradiction"}
_SHOWN = 3


def verify_metadata(source: MetadataSource, files: Files) -> list[Finding]:
    """All findings: those of `kops log verify --level full`, and what only a replay finds."""
    found = verify([source.path], "full", files=files).findings
    return sort_findings([*found, *_once(_findings(source, files))])


def _findings(source: MetadataSource, files: Files) -> Iterator[Finding]:
    """Replay as a node does, beginning with the newest snapshot. Then check each older snapshot against the log."""
    whole = replay(source, files)
    yield from map(_of_fault, filter(_is_new, whole.faults))
    if not whole.faults and not whole.image.is_empty and whole.image.features.metadata_version is None:
        yield finding("metadata-record-contradiction", source.path, "no record sets metadata.version, which a node needs for all others")
    yield from _assignments(source.path, whole.image)
    yield from _snapshots(source, files)


def _once(findings: Iterator[Finding]) -> Iterator[Finding]:
    seen = set()
    for found in findings:
        key = (found.code, found.file, found.base_offset, found.detail)
        if key not in seen:
            seen.add(key)
            yield found


def _is_new(fault: Fault) -> bool:
    """`kops log verify` already reports damage and gaps."""
    return fault.kind in _CODES


def _of_fault(fault: Fault) -> Finding:
    return finding(
        _CODES[fault.kind],
        fault.file,
        fault.reason,
        position=fault.position,
        length=fault.length,
        base_offset=fault.base_offset,
        last_offset=fault.last_offset,
    )


def _assignments(path: str, image: MetadataImage) -> Iterator[Finding]:
    for topic in image.topics.by_name.values():
        for number, one in sorted(topic.partitions.items()):
            wrong = []
            if one.leader >= 0 and one.leader not in one.isr:
                wrong.append(f"its leader {one.leader} is not in its ISR {list(one.isr)}")
            if set(one.isr) - set(one.replicas):
                wrong.append(f"its ISR {list(one.isr)} is not among its replicas {list(one.replicas)}")
            if wrong:
                yield finding("metadata-partition-invalid", path, f"{topic.name}-{number}: {'; '.join(wrong)}")


def _snapshots(source: MetadataSource, files: Files) -> Iterator[Finding]:
    """Replay from the beginning of the log, or from the first snapshot that the log continues, and compare at each later snapshot."""
    if not source.logs:
        return
    start = source.logs[0].offset or 0
    state = Replayed() if start == 0 else None
    for entry in source.snapshots:
        if entry.offset is None or entry.offset == 0:
            continue
        image, faults = read_snapshot(entry, files)
        yield from map(_of_fault, filter(_is_new, faults))
        if state is None:
            if entry.offset >= start and not faults:
                state = Replayed(image, entry, entry.offset)
            continue
        extend(source, files, entry.offset, state)
        if state.end_offset < entry.offset:
            return  # The log ends below the snapshot: the node fetched the snapshot as a follower.
        # Damage costs records, so the state after it can't be compared.
        if not faults and not state.faults:
            yield from _differences(entry, list(compare(tree(state.image), tree(image))))


def _differences(entry: FileEntry, found: list[Difference]) -> Iterator[Finding]:
    if not found:
        return
    told = [f"{each.path}{'' if each.field is None else ' ' + each.field}: {each.before} in the log, {each.after} here" for each in found]
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    yield finding("metadata-snapshot-differs", entry.path, "; ".join(told[:_SHOWN]) + more)
