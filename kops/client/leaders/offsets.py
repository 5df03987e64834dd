"""Offsets of partitions for commands: start and end of a log, the offset of a time. Also deletes the beginning of a log.

Source: Kafka's GetOffsetShell and DeleteRecordsCommand, which use `Admin.listOffsets` and `Admin.deleteRecords`, as this does.
"""

from __future__ import annotations

from collections.abc import Mapping

from kops.client.admin.core.operation import execute
from kops.client.admin.operations import offsets as operations
from kops.client.client import Client
from kops.client.offsets import EARLIEST, LATEST, ListedOffset, OffsetSpec
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

__all__ = ["delete_records", "list_offsets", "resolve_offsets"]


def list_offsets(
    client: Client, targets: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """Ask the leader of each partition for the offset of a time in ms, or of EARLIEST, LATEST …. `committed` reads as with
    read_committed. Raises UnreachableError if a leader can't be reached.
    """
    specs = {key: operations.OffsetSpec(target) for key, target in targets.items()}
    found = execute(client, operations.list_offsets(client, specs, isolation_level="read_committed" if committed else "read_uncommitted"))
    return {
        key: one
        if isinstance(one, ApiError)
        else ListedOffset(one.offset, one.timestamp, -1 if one.leader_epoch is None else one.leader_epoch)
        for key, one in found.outcomes().items()
    }


def resolve_offsets(
    client: Client, specs: Mapping[TopicPartition, OffsetSpec], *, committed: bool = False
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """Return the current offset for each specification.

    A time after the last record, and any time in a log without records, stand for the end. Numbers are limited to the log's range.
    """
    targets = {key: spec.value if spec.kind in ("named", "time") else LATEST for key, spec in specs.items()}
    found = list_offsets(client, targets, committed=committed)
    nothing = {key: LATEST for key, listed in found.items() if isinstance(listed, ListedOffset) and listed.offset < 0}
    if nothing:
        found |= list_offsets(client, nothing, committed=committed)
    numbered = {key for key, spec in specs.items() if spec.kind in ("offset", "before-end")}
    starts = list_offsets(client, dict.fromkeys(numbered, EARLIEST)) if numbered else {}
    for key in numbered:
        end, start = found[key], starts[key]
        if isinstance(end, ListedOffset) and isinstance(start, ListedOffset):
            spec = specs[key]
            wanted = spec.value if spec.kind == "offset" else end.offset - spec.value
            found[key] = ListedOffset(min(max(wanted, start.offset), end.offset), -1, -1)
    return found


def delete_records(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ApiError]:
    """Move the start of logs to these offsets (HIGH_WATERMARK: the end of the replicated part), and return the new low watermarks.

    Raises UnreachableError if a leader can't be reached.
    """
    return dict(execute(client, operations.delete_records(client, offsets)).outcomes())
