"""Storage formats: written data is read back unchanged, and any prefix of it can be read or raises DecodeError."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kops.config.values.properties import read_properties, write_properties
from kops.config.values.topic_names import topic_name_error
from kops.errors import DecodeError
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.clean_shutdown import CleanShutdown, read_clean_shutdown, write_clean_shutdown
from kops.storage.formats.kafka_uuid import ZERO_UUID, uuid_bytes, uuid_text
from kops.storage.formats.leader_epoch_checkpoint import (
    EpochEntry,
    effective_epochs,
    read_leader_epoch_checkpoint,
    write_leader_epoch_checkpoint,
)
from kops.storage.formats.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kops.storage.formats.names import (
    FileKind,
    log_file_name,
    offset_from_file_name,
    parse_log_file,
    parse_partition_dir,
    partition_dir_name,
)
from kops.storage.formats.partition_metadata import PartitionMetadata, read_partition_metadata, write_partition_metadata
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, read_producer_snapshot, write_producer_snapshot
from kops.storage.formats.quorum_state import QuorumState, read_quorum_state, write_quorum_state
from kops.storage.segment_files.offset_index import build_offset_index, read_offset_index, write_offset_index
from kops.storage.segment_files.time_index import build_time_index, read_time_index, write_time_index
from kops.storage.segment_files.transaction_index import AbortedTxn, read_transaction_index, write_transaction_index

LONG = st.integers(-(2**63), 2**63 - 1)
INT = st.integers(-(2**31), 2**31 - 1)
OFFSET = st.integers(0, 2**62)
UUID = st.binary(min_size=16, max_size=16).map(uuid_text)
TOPIC = st.text("abcXYZ019._-", min_size=1, max_size=30)
TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
PRODUCER = st.builds(ProducerSnapshotEntry, LONG, st.integers(-(2**15), 2**15 - 1), INT, LONG, INT, LONG, INT, LONG)


def every_cut(data: bytes, read: Callable[[bytes], object]) -> None:
    for end in range(len(data)):
        try:
            read(data[:end])
        except DecodeError as error:
            assert error.code


@given(OFFSET, st.lists(st.tuples(st.integers(0, 2**31 - 1), INT), max_size=30))
def test_offset_index(base: int, entries: list[tuple[int, int]]) -> None:
    absolute = [(base + relative, position) for relative, position in entries]
    index = build_offset_index(base, absolute)
    again = read_offset_index(write_offset_index(index), base)
    assert list(again) == absolute
    assert [*zip(*again.columns(), strict=True)] == entries
    again.sanity_check()
    every_cut(index.data, lambda data: read_offset_index(data, base).sanity_check())
    ordered = build_offset_index(base, sorted(dict(absolute).items()))
    for offset, _ in absolute:
        assert ordered.lookup(offset).offset == offset
        assert [entry.offset for entry in ordered.truncated_to(offset)] == [o for o in sorted(dict(absolute)) if o < offset]


@given(OFFSET, st.lists(st.tuples(LONG, st.integers(0, 2**31 - 1)), max_size=30))
def test_time_index(base: int, entries: list[tuple[int, int]]) -> None:
    absolute = [(timestamp, base + relative) for timestamp, relative in entries]
    index = build_time_index(base, absolute)
    again = read_time_index(write_time_index(index), base)
    assert list(again) == absolute
    assert [*zip(*again.columns(), strict=True)] == entries
    every_cut(index.data, lambda data: read_time_index(data, base).sanity_check())
    ordered = build_time_index(base, sorted(absolute))
    ordered.sanity_check()
    for timestamp, _ in absolute:
        assert ordered.lookup(timestamp).timestamp == timestamp


@given(st.lists(st.builds(AbortedTxn, LONG, LONG, LONG, LONG, st.integers(-(2**15), 255)), max_size=10))
def test_transaction_index(entries: list[AbortedTxn]) -> None:
    data = write_transaction_index(entries)
    assert read_transaction_index(data) == entries
    for end in range(len(data)):
        assert read_transaction_index(data[:end]) == entries[: end // 34]


@pytest.mark.once
@given(st.lists(PRODUCER, max_size=6))
def test_producer_snapshot(entries: list[ProducerSnapshotEntry]) -> None:
    data = write_producer_snapshot(entries)
    assert read_producer_snapshot(data) == entries
    every_cut(data, read_producer_snapshot)


@pytest.mark.once
@given(st.dictionaries(st.builds(TopicPartition, TOPIC, st.integers(0, 2**31 - 1)), LONG, max_size=8))
def test_offset_checkpoint(offsets: dict[TopicPartition, int]) -> None:
    data = write_offset_checkpoint(offsets)
    assert read_offset_checkpoint(data) == offsets
    every_cut(data, read_offset_checkpoint)


@pytest.mark.once
@given(st.lists(st.builds(EpochEntry, st.integers(0, 2**31 - 1), OFFSET), max_size=8))
def test_leader_epoch_checkpoint(entries: list[EpochEntry]) -> None:
    data = write_leader_epoch_checkpoint(entries)
    assert read_leader_epoch_checkpoint(data) == entries
    every_cut(data, read_leader_epoch_checkpoint)
    kept = effective_epochs(entries)
    assert effective_epochs(kept) == kept
    for before, after in pairwise(kept):
        assert before.epoch < after.epoch
        assert before.start_offset < after.start_offset


@pytest.mark.once
@given(st.sampled_from([0, 1]), st.text("abc =:#!\\-_", max_size=20), INT, st.none() | UUID)
def test_meta_properties(version: int, cluster_id: str, node_id: int, directory_id: str | None) -> None:
    meta = MetaProperties(version, cluster_id, node_id, directory_id)
    data = write_meta_properties(meta, date=0)
    assert read_meta_properties(data) == meta
    every_cut(data, read_meta_properties)


@pytest.mark.once
@given(UUID.filter(lambda uuid: uuid != ZERO_UUID), st.integers(0, 2**31 - 1))
def test_partition_metadata(topic_id: str, version: int) -> None:
    metadata = PartitionMetadata(topic_id, version)
    data = write_partition_metadata(metadata)
    assert read_partition_metadata(data) == metadata
    every_cut(data, read_partition_metadata)


STATIC = st.builds(QuorumState, st.just(0), TEXT, INT, INT, INT, st.just(ZERO_UUID), LONG, st.none() | st.lists(INT, max_size=4))
DYNAMIC = st.builds(QuorumState, st.just(1), st.just(""), INT, INT, INT, UUID)


@pytest.mark.once
@given(STATIC | DYNAMIC)
def test_quorum_state(state: QuorumState) -> None:
    data = write_quorum_state(state)
    assert read_quorum_state(data) == state
    every_cut(data, read_quorum_state)


@pytest.mark.once
@given(LONG)
def test_clean_shutdown(epoch: int) -> None:
    data = write_clean_shutdown(CleanShutdown(epoch))
    assert read_clean_shutdown(data) == CleanShutdown(epoch)
    for end in range(len(data)):
        assert read_clean_shutdown(data[:end]).broker_epoch is None


@pytest.mark.once
@given(st.dictionaries(TEXT, TEXT, max_size=6), st.booleans())
def test_properties(values: dict[str, str], escape_unicode: bool) -> None:
    text = write_properties(values, comments=["x"], escape_unicode=escape_unicode)
    assert read_properties(text) == values
    if escape_unicode:
        assert read_properties(text.encode("ascii")) == values
    every_cut(text.encode("utf-8"), read_properties)


@pytest.mark.once
@given(st.integers(0, 2**63 - 1), st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]))
def test_file_names(offset: int, kind: FileKind) -> None:
    name = log_file_name(offset, kind)
    parsed = parse_log_file(name)
    assert parsed is not None
    assert parsed == (kind, offset, "", None)
    assert offset_from_file_name(name) == offset
    assert len(name.partition(".")[0]) == 20


@pytest.mark.once
@given(TOPIC, st.integers(0, 2**31 - 1), st.sampled_from(["", "delete", "future", "stray"]))
def test_directory_names(topic: str, partition: int, state: str) -> None:
    unique_id = "5" * 32 if state else ""
    name = partition_dir_name(topic, partition, state, unique_id)  # type: ignore[arg-type]
    if not topic_name_error(topic):
        assert parse_partition_dir(name) == (topic, partition, state, unique_id)


@pytest.mark.once
@given(st.binary(min_size=16, max_size=16))
def test_uuids(data: bytes) -> None:
    assert uuid_bytes(uuid_text(data)) == data
    assert len(uuid_text(data)) == 22
