"""The state of coordinators from synthetic logs: groups and expiry, foreign records, hanging transactions."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kops.errors import NotFoundError, UsageError
from kops.files import OsFiles
from kops.forensics.coordinators.hanging import EMPTY, HANGING, OPEN, TransactionRow, TransactionSearch
from kops.forensics.coordinators.internal_topics import open_topic
from kops.forensics.coordinators.offsets import Position, read_offsets
from kops.forensics.coordinators.transactional_ids import STATES, read_ids
from kops.forensics.inventory.tree import open_partition
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupMemberMetadataValue,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerProtocolSubscription,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    StreamsGroupCurrentMemberAssignmentKey,
    StreamsGroupCurrentMemberAssignmentValue,
    StreamsGroupMemberMetadataKey,
    StreamsGroupMemberMetadataValue,
    StreamsGroupMetadataKey,
    StreamsGroupMetadataValue,
    StreamsGroupTopologyKey,
    StreamsGroupTopologyValue,
    TransactionLogKey,
    TransactionLogValue,
)
from kops.protocol.messages.group_metadata_value import MemberMetadata
from kops.protocol.messages.streams_group_topology_value import Subtopology, TopicInfo
from kops.protocol.messages.transaction_log_value import PartitionsSchema
from kops.protocol.record_values import write_coordinator_key, write_versioned
from kops.records import BatchBuilder
from kops.records.build import end_txn_marker
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, write_producer_snapshot

FILES = OsFiles(read_only=True)
WEEK = 604_800_000


class Log:
    """A partition's only segment, made batch by batch. Times are 1000 times the offset."""

    def __init__(self, folder: Path, base: int = 0) -> None:
        self.folder = folder
        self.base = base
        self.end = base
        self.data = b""

    def add(self, key: bytes | None, value: bytes | None, **fields: Any) -> Log:
        if "producer_id" in fields:
            fields.setdefault("base_sequence", self.end)
        builder = BatchBuilder(base_offset=self.end, transactional="producer_id" in fields, **fields)
        builder.append(self.end * 1000, key, value)
        self.data += builder.build()
        self.end += 1
        return self

    def message(self, key: Message, value: Message | None, version: int = 0, **fields: Any) -> Log:
        return self.add(write_coordinator_key(key), None if value is None else write_versioned(value, version), **fields)

    def offset(self, group: str, offset: int | None, topic: str = "t", **fields: Any) -> Log:
        key = OffsetCommitKey(group=group, topic=topic, partition=0)
        value = None if offset is None else OffsetCommitValue(offset=offset, commit_timestamp=self.end * 1000)
        return self.message(key, value, 3, **fields)

    def marker(self, producer_id: int, *, commit: bool = True, epoch: int = 0) -> Log:
        about = {"coordinator_epoch": 5, "producer_id": producer_id, "producer_epoch": epoch}
        self.data += end_txn_marker(self.end, self.end * 1000, commit=commit, **about)
        self.end += 1
        return self

    def state(self, name: str, producer_id: int, state: str, *partitions: tuple[str, int], epoch: int = 0) -> Log:
        value = TransactionLogValue(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_status=STATES.index(state),
            transaction_timeout_ms=60_000,
            transaction_partitions=[PartitionsSchema(topic=topic, partition_ids=[number]) for topic, number in partitions],
            transaction_start_timestamp_ms=self.end * 1000,
            transaction_last_update_timestamp_ms=self.end * 1000,
        )
        return self.message(TransactionLogKey(transactional_id=name), value)

    def write(self) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / f"{self.base:020d}.log").write_bytes(self.data)
        return self.folder


def positions(log: Log) -> list[Position]:
    found = read_offsets(FILES, open_partition(log.write(), FILES))
    assert (found.raw, found.lost) == ([], [])
    return list(found.replay.positions("log", WEEK))


@pytest.fixture
def group_log(tmp_path: Path) -> Log:
    return Log(tmp_path / "__consumer_offsets-0")


# Offsets --------------------------------------------------------------------------------------------------------------------------------


def group(protocol_type: str, *topics: str, timestamp: int = 77) -> GroupMetadataValue:
    """Return the record of a classic group with a member for each topic."""
    subscriptions = [write_versioned(ConsumerProtocolSubscription(topics=[topic]), 0) for topic in topics]
    members = [MemberMetadata(member_id=f"m{number}", subscription=each) for number, each in enumerate(subscriptions)]
    return GroupMetadataValue(protocol_type=protocol_type, protocol="range", current_state_timestamp=timestamp, members=members)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, WEEK),  # nobody has ever joined: counts from the commit
        (group("consumer"), 77 + WEEK),  # empty since then
        (group("consumer", timestamp=-1), WEEK),  # an old record
        (group("consumer", "t"), None),  # a member reads the topic
        (group("consumer", "other"), WEEK),
        (group("connect", "t"), None),
    ],
)
def test_offsets_of_classic_groups_expire(group_log: Log, value: GroupMetadataValue | None, expected: int | None) -> None:
    group_log.offset("g", 5)
    if value is not None:
        group_log.message(GroupMetadataKey(group="g"), value, 3)
    assert [each.expires_ms for each in positions(group_log)] == [expected]


def test_an_offset_whose_group_was_deleted(group_log: Log) -> None:
    """Usually the tombstones of the group's offsets come first. Here they are missing."""
    group_log.offset("g", 5).message(GroupMetadataKey(group="g"), group("consumer", "t"), 3).message(GroupMetadataKey(group="g"), None)
    assert [each.expires_ms for each in positions(group_log)] == [WEEK]


def test_offsets_of_consumer_groups_expire_when_nobody_subscribes(group_log: Log) -> None:
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    group_log.message(key, ConsumerGroupMemberMetadataValue(subscribed_topic_names=["t"])).offset("g", 5).offset("g", 6, "u")
    assert [each.expires_ms for each in positions(group_log)] == [None, 2000 + WEEK]
    group_log.message(ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="m"), None)
    group_log.message(ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"), None).message(key, None)
    assert [each.expires_ms for each in positions(group_log)] == [1000 + WEEK, 2000 + WEEK]


def test_offsets_of_streams_groups_expire_when_the_application_is_gone(group_log: Log) -> None:
    topology = StreamsGroupTopologyValue(0, [Subtopology("0", ["t"], [], [], [], [TopicInfo("again", 0, 0, [])], [])])
    group_log.message(StreamsGroupTopologyKey("g"), topology)
    group_log.message(StreamsGroupMetadataKey("g"), StreamsGroupMetadataValue(2, 0, 0))
    group_log.message(StreamsGroupMemberMetadataKey("g", "m"), StreamsGroupMemberMetadataValue(None, None, "c", "h", 1000, 0, "p"))
    for topic in ("t", "again", "other"):
        group_log.offset("g", 5, topic)
    assert {one.place.topic: one.expires_ms for one in positions(group_log)} == {"t": None, "again": None, "other": 5000 + WEEK}
    group_log.message(StreamsGroupCurrentMemberAssignmentKey("g", "m"), StreamsGroupCurrentMemberAssignmentValue(2, 1, 1)).message(
        StreamsGroupCurrentMemberAssignmentKey("g", "m"), None
    )
    group_log.message(StreamsGroupMemberMetadataKey("g", "m"), None)
    assert {one.place.topic: one.expires_ms for one in positions(group_log)} == {
        "t": 3000 + WEEK,
        "again": 4000 + WEEK,
        "other": 5000 + WEEK,
    }


def test_offsets_in_transactions(group_log: Log) -> None:
    group_log.offset("g", 1).offset("g", 2, producer_id=7, producer_epoch=0)
    assert [(each.state, each.offset, each.producer_id, each.expires_ms) for each in positions(group_log)] == [
        ("committed", 1, None, None),
        ("pending", 2, 7, None),
    ]
    group_log.marker(7)
    assert [(each.state, each.offset) for each in positions(group_log)] == [("committed", 2)]
    # A plain commit that was written between the transactional offset and its marker counts.
    group_log.offset("g", 3, producer_id=7, producer_epoch=0).offset("g", 4).marker(7)
    assert [(each.state, each.offset) for each in positions(group_log)] == [("committed", 4)]
    group_log.offset("g", 5, producer_id=7, producer_epoch=0).marker(7, commit=False).offset("g", None)
    assert [(each.state, each.offset, each.timestamp) for each in positions(group_log)] == [("deleted", None, 8000)]


def test_what_is_not_the_coordinators_is_kept_raw(group_log: Log) -> None:
    group_log.offset("g", 1).add(None, b"x").add(b"foreign", b"x").add(struct.pack(">h", 99), b"x")
    group_log.add(write_coordinator_key(OffsetCommitKey(group="g", topic="t", partition=1)), b"\x00\x63").offset("h", 2)
    found = read_offsets(FILES, open_partition(group_log.write(), FILES))
    assert [(each.offset, each.reason) for each in found.raw] == [
        (1, "the key is missing"),
        (2, "unknown record type 26223"),
        (3, "unknown record type 99"),
        (4, found.raw[3].reason),
    ]
    assert (found.raw[1].key, found.raw[1].value) == (b"foreign", b"x")
    assert [each.place.group for each in found.replay.positions("log", WEEK)] == ["g", "h"]


def test_a_record_that_contradicts_those_before_it_is_kept_raw(group_log: Log) -> None:
    """A coordinator would fail there. The members' epochs may have been in a damaged batch."""
    key = ConsumerGroupMemberMetadataKey(group_id="g", member_id="m")
    group_log.message(key, ConsumerGroupMemberMetadataValue()).message(key, None).offset("g", 1)
    found = read_offsets(FILES, open_partition(group_log.write(), FILES))
    assert [(each.offset, "tombstone" in each.reason) for each in found.raw] == [(1, True)]
    assert [each.place.group for each in found.replay.positions("log", WEEK)] == ["g"]


def test_damage_costs_only_what_it_hits(group_log: Log) -> None:
    for number in range(3):
        group_log.offset(f"g{number}", number)
    path = group_log.write() / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    found = read_offsets(FILES, open_partition(group_log.folder, FILES))
    assert [(each.base_offset, each.last_offset) for each in found.lost] == [(1, 1)]
    assert [each.place.group for each in found.replay.positions("log", WEEK)] == ["g0", "g2"]


def test_paths_without_the_topic(tmp_path: Path, group_log: Log) -> None:
    group_log.offset("g", 1).write()
    with pytest.raises(UsageError, match="no partition of __transaction_state"):
        open_topic([str(tmp_path)], "__transaction_state", FILES)
    with pytest.raises(NotFoundError):
        open_topic([str(tmp_path / "none")], "__consumer_offsets", FILES)
    with pytest.raises(UsageError, match="a file"):
        open_topic([str(group_log.folder / "00000000000000000000.log")], "__consumer_offsets", FILES)


# Transactional ids ----------------------------------------------------------------------------------------------------------------------


def test_transactional_ids(tmp_path: Path) -> None:
    log = Log(tmp_path / "__transaction_state-0")
    log.state("a", 1, "Empty", ("t", 9)).state("b", 2, "Ongoing", ("t", 1), ("s", 2)).state("c", 3, "CompleteAbort").state("d", 4, "Empty")
    log.message(TransactionLogKey(transactional_id="d"), None)
    value = TransactionLogValue(transaction_status=42)
    log.message(TransactionLogKey(transactional_id="e"), value)
    found = read_ids(FILES, open_partition(log.write(), FILES), expiration_ms=10)
    about = [(one.transactional_id, one.state, one.partitions, one.overdue_ms, one.expires_ms) for one in found.sorted_ids()]
    assert about == [
        ("a", "Empty", (), None, 10),
        ("b", "Ongoing", (("s", 2), ("t", 1)), 61_000, None),
        ("c", "CompleteAbort", (), None, 2010),
        ("d", "Deleted", (), None, None),
    ]
    assert [each.reason for each in found.raw] == ["Unknown transaction state id 42 from the transaction status message"]
    early = read_ids(FILES, open_partition(log.folder, FILES), at_ms=3000)
    assert early.ids["d"].state == "Empty"


# Transactions ---------------------------------------------------------------------------------------------------------------------------


def search(tmp_path: Path, data: Log, ids: Log | None, *, with_empty: bool = False) -> list[TransactionRow]:
    data.write()
    if ids is not None:
        ids.write()
    return list(TransactionSearch([str(tmp_path)], FILES).rows(with_empty=with_empty))


@pytest.mark.parametrize(
    ("state", "partitions", "epoch", "expected"),
    [
        ("Ongoing", [("t", 0)], 3, OPEN),
        ("Ongoing", [("t", 1)], 3, HANGING),  # the coordinator knows the producer, but not in this partition
        ("Ongoing", [("t", 0)], 4, HANGING),  # there a newer transaction of the producer is open
        ("Ongoing", [("t", 0)], 2, OPEN),
        ("PrepareCommit", [("t", 0)], 3, OPEN),  # the marker is on its way
        ("PrepareAbort", [("t", 0)], 4, OPEN),  # with the next epoch, as transaction version 2 writes it
        ("PrepareAbort", [("t", 1)], 4, HANGING),  # this partition already has its marker
        ("CompleteCommit", [], 3, HANGING),
        ("CompleteAbort", [], 4, HANGING),
        ("CompleteAbort", [], 2, OPEN),  # the transaction log is older than the data
        ("Empty", [], 3, HANGING),
    ],
)
def test_a_transaction_hangs_if_the_coordinator_will_not_end_it(
    tmp_path: Path, state: str, partitions: list[tuple[str, int]], epoch: int, expected: str
) -> None:
    data = Log(tmp_path / "t-0").add(b"k", b"v").add(b"k", b"v", producer_id=7, producer_epoch=3)
    ids = Log(tmp_path / "__transaction_state-0").state("pay 1", 7, state, *partitions, epoch=epoch)
    [row] = search(tmp_path, data, ids)
    assert (row.state, row.coordinator, row.transactional_id) == (expected, state, "pay 1")
    assert (row.first_offset, row.last_stable_offset, row.end_offset, row.holds_lso) == (1, 1, 2, True)
    by_id = expected == OPEN and state in ("Ongoing", "PrepareCommit", "PrepareAbort")
    assert row.command == (
        "kops txn abort --transactional-id 'pay 1'" if by_id else "kops txn abort --topic t --partition 0 --start-offset 1"
    )


def test_a_producer_that_the_coordinator_does_not_know(tmp_path: Path) -> None:
    data = Log(tmp_path / "t-0").add(b"k", b"v", producer_id=7, producer_epoch=3)
    assert [row.state for row in search(tmp_path, data, None)] == [OPEN]
    ids = Log(tmp_path / "__transaction_state-1").state("a", 8, "Ongoing", ("t", 0))
    [row] = search(tmp_path, data, ids)
    assert (row.state, row.note is not None) == (OPEN, True)  # partition 0 of the transaction log is missing
    Log(tmp_path / "__transaction_state-0").state("b", 9, "Empty").write()
    [row] = search(tmp_path, data, ids)
    assert (row.state, row.coordinator, row.note) == (HANGING, "not known", None)


def test_markers_end_transactions_or_are_empty(tmp_path: Path) -> None:
    data = Log(tmp_path / "t-0").add(b"k", b"v", producer_id=7, producer_epoch=0).add(b"k", b"v", producer_id=8, producer_epoch=1)
    data.marker(7).add(b"k", b"v", producer_id=7, producer_epoch=1).marker(9, commit=False)
    rows = search(tmp_path, data, None, with_empty=True)
    about = [(row.state, row.producer_id, row.producer_epoch, row.first_offset, row.coordinator_epoch, row.holds_lso) for row in rows]
    assert about == [(OPEN, 8, 1, 1, None, True), (OPEN, 7, 1, 3, 5, False), (EMPTY, 9, 0, None, None, False)]


def test_a_marker_may_have_been_in_damage(tmp_path: Path) -> None:
    data = Log(tmp_path / "t-0").add(b"k", b"v", producer_id=7, producer_epoch=0)
    size = len(data.data)
    data.marker(7).add(b"k", b"v")
    data.data = data.data[: size + 70] + b"\xff" + data.data[size + 71 :]
    ids = Log(tmp_path / "__transaction_state-0").state("a", 7, "CompleteCommit")
    [row] = search(tmp_path, data, ids)
    assert (row.state, "a marker may have been in the damage" in (row.note or "")) == (OPEN, True)


def test_a_transaction_that_began_below_the_log(tmp_path: Path) -> None:
    data = Log(tmp_path / "t-0", base=50).add(b"k", b"v")
    folder = data.write()
    entry = ProducerSnapshotEntry(7, 2, 10, 49, 0, 12_345, 3, 40)
    (folder / f"{50:020d}.snapshot").write_bytes(write_producer_snapshot([entry]))
    [row] = search(tmp_path, data, None)
    assert (row.first_offset, row.since_ms, row.last_timestamp, row.last_stable_offset) == (40, None, 12_345, 40)
