"""Makes the rows of modes `groups`, `transactions` and `metadata`: the state in the internal topics of a cluster, past damage.

The replay is that of `kops log offsets`, `kops log txnstate` and `kops log meta`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from kops.errors import KopsError
from kops.files import Files
from kops.forensics.coordinators.offsets import DEFAULT_RETENTION_MS, read_offsets
from kops.forensics.coordinators.records import Lost, Raw
from kops.forensics.coordinators.transactional_ids import read_ids
from kops.forensics.inventory.replicas import Replica
from kops.forensics.metadata_log.replay import replay
from kops.forensics.metadata_log.source import open_metadata
from kops.forensics.metadata_log.tree import Folder, tree, walk
from kops.spark.source.rows import microseconds

if TYPE_CHECKING:
    from kops.forensics.coordinators.offsets import Position
    from kops.forensics.coordinators.transactional_ids import TransactionalId

Row = dict[str, Any]
TOPICS = {"groups": "__consumer_offsets", "transactions": "__transaction_state", "metadata": "__cluster_metadata"}
"""Mode → the topic that it reads."""


def read_state(files: Files, mode: str, replica: Replica, at_ms: int | None) -> Iterator[Row]:
    """Yield the rows of one partition directory. Raises OSError if a file can't be read."""
    same = {"path": replica.directory.path, "broker": replica.broker}
    read = {"groups": _groups, "transactions": _transactions, "metadata": _metadata}[mode]
    for row in read(files, replica, at_ms):
        yield {**same, **row}


def _groups(files: Files, replica: Replica, at_ms: int | None) -> Iterator[Row]:
    found = read_offsets(files, replica.directory, at_ms=at_ms)
    yield from (_damage(lost) for lost in found.lost)
    for one in found.replay.positions(replica.directory.name, DEFAULT_RETENTION_MS):
        yield _group(one)
    yield from (_raw(raw) for raw in found.raw)


def _group(one: Position) -> Row:
    return {
        "group": one.place.group,
        "topic": one.place.topic,
        "partition": one.place.partition,
        "offset": one.offset,
        "leaderEpoch": one.leader_epoch,
        "metadata": one.metadata,
        "state": one.state,
        "timestamp": microseconds(one.timestamp),
        "expires": _time(one.expires_ms),
        "producerId": one.producer_id,
        "recordOffset": one.record_offset,
    }


def _transactions(files: Files, replica: Replica, at_ms: int | None) -> Iterator[Row]:
    found = read_ids(files, replica.directory, at_ms=at_ms)
    yield from (_damage(lost) for lost in found.lost)
    yield from (_transaction(one) for one in found.sorted_ids())
    yield from (_raw(raw) for raw in found.raw)


def _transaction(one: TransactionalId) -> Row:
    return {
        "transactionalId": one.transactional_id,
        "state": one.state,
        "producerId": one.producer_id,
        "producerEpoch": one.producer_epoch,
        "partitions": [{"topic": topic, "partition": partition} for topic, partition in one.partitions],
        "timeoutMs": one.timeout_ms,
        "started": _time(one.started_ms),
        "updated": _time(one.updated_ms),
        "overdue": _time(one.overdue_ms),
        "expires": _time(one.expires_ms),
        "previousProducerId": one.previous_producer_id,
        "nextProducerId": one.next_producer_id,
        "recordOffset": one.record_offset,
    }


def _metadata(files: Files, replica: Replica, at_ms: int | None) -> Iterator[Row]:
    try:
        found = replay(open_metadata(replica.directory.path, files), files)
    except KopsError as error:
        yield {"damage": {"code": "metadata", "reason": str(error)}}
        return
    for fault in found.faults:
        span = {"baseOffset": fault.base_offset, "lastOffset": fault.last_offset}
        yield {"damage": {"code": "metadata", "reason": f"{fault.file}: {fault.reason}", "position": fault.position, **span}}
    for node, value in walk(tree(found.image)):
        if node and not isinstance(value, Folder):
            yield {"node": node, "value": json.dumps(value), "offset": found.image.offset}


def _damage(lost: Lost) -> Row:
    place = {"position": lost.position, "length": lost.length, "baseOffset": lost.base_offset, "lastOffset": lost.last_offset}
    return {"path": lost.file, "damage": {"code": "left-out", "reason": lost.reason, **place}}


def _raw(raw: Raw) -> Row:
    damage = {"code": "undecodable", "reason": raw.reason, "baseOffset": raw.offset, "lastOffset": raw.offset}
    return {"state": "raw", "recordOffset": raw.offset, "damage": damage}


def _time(value: int | None) -> int | None:
    return None if value is None else microseconds(value)
