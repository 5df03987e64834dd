"""The control records of a quorum and of its snapshots: their values, and the batches around them.

Formats: the descriptors LeaderChangeMessage, KRaftVersionRecord, VotersRecord, SnapshotHeaderRecord and SnapshotFooterRecord, all written
in version 0 (Kafka's ControlRecordUtils), in flexible encoding. The keys are those of ControlRecordType.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kops.errors import DecodeError
from kops.metadata.raft.log.entries import check_entry
from kops.metadata.raft.voters.replica import Endpoints, ReplicaKey
from kops.metadata.raft.voters.voter_set import VoterNode, VoterSet
from kops.protocol.declaration import Message
from kops.protocol.messages import leader_change_message, voters_record
from kops.protocol.messages.k_raft_version_record import KRaftVersionRecord
from kops.protocol.messages.snapshot_footer_record import SnapshotFooterRecord
from kops.protocol.messages.snapshot_header_record import SnapshotHeaderRecord
from kops.records import Batch, BatchBuilder, Record
from kops.records.record import CONTROL_TYPES, KRAFT_VERSION, KRAFT_VOTERS, LEADER_CHANGE, SNAPSHOT_FOOTER, SNAPSHOT_HEADER, control_type_id

_CODE: Final = "bad-control-record"
_VERSION: Final = 0
_MESSAGES: Final[dict[str, type[Message]]] = {
    LEADER_CHANGE: leader_change_message.LeaderChangeMessage,
    SNAPSHOT_HEADER: SnapshotHeaderRecord,
    SNAPSHOT_FOOTER: SnapshotFooterRecord,
}


class ControlRecord(NamedTuple):
    """A control record to write: the name of its type (see kops.records.record) and its value."""

    type: str
    value: bytes


def leader_change(leader_id: int, voters: Iterable[int], granting_voters: Iterable[int]) -> ControlRecord:
    """Return the first record of an epoch."""
    lists = [[leader_change_message.Voter(id) for id in ids] for ids in (voters, granting_voters)]
    return ControlRecord(LEADER_CHANGE, leader_change_message.LeaderChangeMessage(0, leader_id, *lists).encode(_VERSION))


def kraft_version(level: int) -> ControlRecord:
    """Return the record that sets the quorum's feature level."""
    return ControlRecord(KRAFT_VERSION, KRaftVersionRecord(0, level).encode(_VERSION))


def voters(voter_set: VoterSet) -> ControlRecord:
    """Return the record that sets the voters, by ascending id. (Kafka uses the order of a HashMap, which is the same for ids below its
    size.)"""
    return ControlRecord(KRAFT_VOTERS, voters_record.VotersRecord(0, [_voter(each) for each in voter_set]).encode(_VERSION))


def _voter(voter: VoterNode) -> voters_record.Voter:
    endpoints = [voters_record.Endpoint(name, host, port) for name, (host, port) in voter.listeners.items()]
    versions = voters_record.KRaftVersionFeature(voter.min_version, voter.max_version)
    return voters_record.Voter(voter.key.id, voter.key.directory_id_or_zero, endpoints, versions)


def snapshot_header(last_contained_log_timestamp: int) -> ControlRecord:
    """Return the first record of a snapshot, with the time (ms) of the last record that the snapshot covers."""
    return ControlRecord(SNAPSHOT_HEADER, SnapshotHeaderRecord(0, last_contained_log_timestamp).encode(_VERSION))


def snapshot_footer() -> ControlRecord:
    """Return the last record of a snapshot."""
    return ControlRecord(SNAPSHOT_FOOTER, SnapshotFooterRecord(0).encode(_VERSION))


def control_batch(records: Sequence[ControlRecord], *, base_offset: int, epoch: int, now_ms: int) -> bytes:
    """Return a control batch of these records, all with the same time."""
    builder = BatchBuilder(base_offset=base_offset, control=True, partition_leader_epoch=epoch)
    for record in records:
        builder.append_control(now_ms, record.type, record.value)
    return builder.build()


class QuorumChange(NamedTuple):
    """A change that a control record makes: it sets the kraft.version (an int) or the voters from `offset`."""

    offset: int
    value: int | VoterSet


def quorum_changes(batch: Batch) -> list[QuorumChange]:
    """Return the changes in a control batch, or nothing for any other batch. Raises DecodeError (`bad-control-record`)."""
    found = []
    for record in batch.records() if batch.is_control else ():
        _, number = control_type_id(record.key)
        name = CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else ""
        if name == KRAFT_VERSION:
            found.append(QuorumChange(record.offset, read_kraft_version(record.value or b"")))
        elif name == KRAFT_VOTERS:
            found.append(QuorumChange(record.offset, read_voters(record.value or b"")))
    return found


def check_control_record(batch: Batch, record: Record) -> str:
    """Return the type of a control record. Raises DecodeError where Kafka's RecordsIterator or KRaftControlRecordStateMachine throws."""
    check_entry(batch, record)
    if not record.key or not record.value:
        raise DecodeError(f"a control record has no {'value' if record.key else 'key'}", code=_CODE)
    _, number = control_type_id(record.key)
    name = CONTROL_TYPES[number] if 0 <= number < len(CONTROL_TYPES) else ""
    if name == KRAFT_VERSION:
        read_kraft_version(record.value)
    elif name == KRAFT_VOTERS:
        read_voters(record.value)
    elif name in _MESSAGES:
        _MESSAGES[name].decode(record.value, _VERSION)
    else:
        raise DecodeError(f"unknown control record type {name or number}", code=_CODE)
    return name


def read_kraft_version(value: bytes) -> int:
    """Return the level in a KRaftVersionRecord. Raises DecodeError."""
    level = KRaftVersionRecord.decode(value, _VERSION).k_raft_version
    if level not in (0, 1):
        raise DecodeError(f"kraft.version {level} is unknown; known: 0 and 1", code=_CODE)
    return level


def read_voters(value: bytes) -> VoterSet:
    """Return the voters in a VotersRecord. Raises DecodeError, also for a voter whose range of versions is none."""
    voters = voters_record.VotersRecord.decode(value, _VERSION).voters
    for voter in voters:
        versions = voter.k_raft_version_feature
        if not 0 <= versions.min_supported_version <= versions.max_supported_version:
            shown = f"{versions.min_supported_version} to {versions.max_supported_version}"
            raise DecodeError(f"voter {voter.voter_id} supports kraft.version {shown}, which is no range", code=_CODE)
    return VoterSet(
        VoterNode(
            ReplicaKey.read(voter.voter_id, voter.voter_directory_id),
            Endpoints.read(voter.endpoints),
            voter.k_raft_version_feature.min_supported_version,
            voter.k_raft_version_feature.max_supported_version,
        )
        for voter in voters
    )


def read_snapshot_header(batch: Batch) -> int:
    """Return the time (ms) of the last log record that a snapshot covers, from its first batch. Raises DecodeError."""
    records = batch.records() if batch.is_control else []
    if not records or control_type_id(records[0].key)[1] != CONTROL_TYPES.index(SNAPSHOT_HEADER):
        raise DecodeError("the snapshot does not begin with its header", code=_CODE)
    return SnapshotHeaderRecord.decode(records[0].value or b"", _VERSION).last_contained_log_timestamp
