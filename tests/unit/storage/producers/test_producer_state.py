"""Producers and transactions as recovery rebuilds them, snapshots, and Java's order of producers in them."""

from __future__ import annotations

import random

import pytest

from kops.config.values.java_hash import HashOrder
from kops.files import MemoryFiles
from kops.records import Batch, BatchBuilder, BytesSource, decrement_sequence, increment_sequence
from kops.records.batch import BATCH_OVERHEAD
from kops.records.build import write_batch
from kops.storage.failures.load_errors import InvalidRecordError, LoadError
from kops.storage.formats.producer_snapshot import read_producer_snapshot
from kops.storage.producers import append
from kops.storage.producers.append import BatchMetadata, ProducerAppendInfo, ProducerStateEntry
from kops.storage.producers.state import ProducerState, ProducerStateManager
from kops.storage.segment_files.file_records import LogView

DIRECTORY = "/t-0"
INT_MAX = 2**31 - 1


def batches(*parts: bytes) -> list[Batch]:
    return list(LogView(BytesSource(b"".join(parts)), "x.log").batches())


def data(
    producer: int, epoch: int, sequence: int, offset: int, count: int = 1, *, transactional: bool = False, timestamp: int = 5
) -> bytes:
    builder = BatchBuilder(
        base_offset=offset, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    for _ in range(count):
        builder.append(timestamp, None, b"v")
    return builder.build()


def marker(producer: int, epoch: int, offset: int, *, commit: bool, coordinator_epoch: int = 3) -> bytes:
    builder = BatchBuilder(base_offset=offset, producer_id=producer, producer_epoch=epoch, transactional=True, control=True)
    builder.append_end_txn_marker(9, commit, coordinator_epoch)
    return builder.build()


def control(key: bytes | None, value: bytes | None) -> bytes:
    builder = BatchBuilder(base_offset=0, producer_id=1, producer_epoch=0, transactional=True, control=True)
    builder.append(9, key, value)
    return builder.build()


def state_of(*parts: bytes) -> ProducerState:
    state = ProducerState()
    state.load_batches(batches(*parts))
    return state


def test_sequences_wrap() -> None:
    assert increment_sequence(INT_MAX, 1) == 0
    assert increment_sequence(INT_MAX - 1, 3) == 1
    assert decrement_sequence(0, 1) == INT_MAX
    assert decrement_sequence(1, 3) == INT_MAX - 1
    assert increment_sequence(7, 5) == 12
    assert decrement_sequence(12, 5) == 7


def test_a_batch_is_remembered() -> None:
    entry = state_of(data(1, 0, 0, 10, 4)).producers[1]
    assert entry.batches[-1] == BatchMetadata(last_sequence=3, last_offset=13, offset_delta=3, timestamp=5)
    assert entry.batches[-1].first_sequence == 0
    assert entry.batches[-1].first_offset == 10
    assert (entry.producer_epoch, entry.last_sequence, entry.last_data_offset, entry.first_sequence) == (0, 3, 13, 0)


def test_five_batches_are_kept() -> None:
    entry = state_of(*(data(1, 0, number, number) for number in range(9))).producers[1]
    assert [batch.last_offset for batch in entry.batches] == [4, 5, 6, 7, 8]


def test_a_new_epoch_forgets_the_old_batches() -> None:
    entry = state_of(data(1, 0, 0, 0), data(1, 1, 0, 1)).producers[1]
    assert entry.producer_epoch == 1
    assert [batch.last_offset for batch in entry.batches] == [1]


@pytest.mark.parametrize("epoch", [0, 7])
def test_what_is_read_back_is_taken_as_it_is(epoch: int) -> None:
    """A gap in the sequence numbers or an older epoch does not matter: a replica trusts its leader and its own log."""
    entry = state_of(data(1, 3, 0, 0), data(1, epoch, 100, 1)).producers[1]
    assert (entry.producer_epoch, entry.last_sequence) == (epoch, 100)


def test_a_transaction_begins_with_its_first_batch() -> None:
    state = state_of(data(1, 0, 0, 10, 2, transactional=True), data(1, 0, 2, 12, transactional=True))
    assert state.producers[1].current_txn_first_offset == 10
    assert state.first_unstable_offset == 10
    assert list(state.ongoing_txns) == [10]


@pytest.mark.parametrize("commit", [True, False])
def test_a_marker_ends_it(commit: bool) -> None:
    first = batches(data(1, 0, 0, 10, 2, transactional=True))[0]
    info = ProducerAppendInfo(ProducerStateEntry(1))
    assert info.append(first) is None
    completed = info.append(batches(marker(1, 0, 12, commit=commit))[0])
    assert completed is not None
    assert (completed.producer_id, completed.first_offset, completed.last_offset) == (1, 10, 12)
    assert completed.is_aborted is not commit
    assert info.entry.coordinator_epoch == 3
    assert info.entry.current_txn_first_offset is None
    assert info.entry.last_timestamp == 9


def test_a_decided_transaction_waits_for_the_high_watermark() -> None:
    state = state_of(data(1, 0, 0, 10, transactional=True), marker(1, 0, 11, commit=False))
    assert state.first_unstable_offset == 10
    state.on_high_watermark_updated(11)
    assert state.first_unstable_offset == 10
    state.on_high_watermark_updated(12)
    assert state.first_unstable_offset is None


def test_last_stable_offset_is_the_next_open_transaction() -> None:
    state = ProducerState()
    for part in batches(
        data(1, 0, 0, 10, transactional=True), data(2, 0, 0, 11, transactional=True), data(3, 0, 0, 12, transactional=True)
    ):
        info = state.prepare_update(part.producer_id)
        info.append(part)
        state.update(info)
    info = state.prepare_update(1)
    completed = info.append(batches(marker(1, 0, 13, commit=True))[0])
    assert completed is not None
    assert state.last_stable_offset(completed) == 11
    assert ProducerState().last_stable_offset(completed) == 14


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("place", range(17))
def test_a_marker_that_is_read_without_decoding_says_the_same(commit: bool, place: int) -> None:
    """Each byte of the record is replaced by each other: the short way says what the decoder says, or leaves it to the decoder."""
    whole = marker(1, 0, 12, commit=commit)
    usual = append.usual_marker(batches(whole)[0])
    assert usual == decoded_marker(whole) == (not commit, 3, 9)
    taken = 0
    for byte in range(256):
        changed = bytearray(whole)
        changed[BATCH_OVERHEAD + place] = byte
        found = append.usual_marker(batches(bytes(changed))[0])
        taken += found is not None
        assert found in (None, decoded_marker(bytes(changed)))
    # The type, the version (not negative) and the coordinator's epoch may be others.
    assert taken == {8: 2, 10: 128, 11: 256, 12: 256, 13: 256, 14: 256, 15: 256}.get(place, 1)


def decoded_marker(data: bytes) -> tuple[bool, int, int] | str:
    """What the decoder says of the marker in a batch, or the name of its error."""
    try:
        record = append.first_record(batches(data)[0])
        assert record is not None
        return *append.read_end_txn_marker(record), record.timestamp
    except LoadError as error:
        return type(error).__name__


def test_a_marker_without_a_transaction_changes_the_epoch_only() -> None:
    state = state_of(data(1, 0, 0, 0), marker(1, 2, 1, commit=True))
    entry = state.producers[1]
    assert (entry.producer_epoch, entry.coordinator_epoch, len(entry.batches)) == (2, 3, 0)
    assert state.first_unstable_offset is None


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    with pytest.raises(LoadError) as caught:
        state_of(data(1, 0, 0, 0, transactional=True), data(1, 0, 1, 1))
    assert caught.value.exception == "org.apache.kafka.common.errors.InvalidTxnStateException"


def test_a_transaction_that_was_not_started_cannot_be_completed() -> None:
    state = state_of(data(1, 0, 0, 0, transactional=True))
    completed = state.prepare_update(1).append(batches(marker(1, 0, 1, commit=True))[0])
    assert completed is not None
    state.complete_txn(completed)
    with pytest.raises(LoadError, match=r"transaction CompletedTxn\(1, 0, 1, False\) which was not started"):
        state.complete_txn(completed)


@pytest.mark.parametrize(
    ("key", "value", "exception"),
    [
        (None, b"\0\0\0\0\0\0", "java.lang.NullPointerException"),
        (b"\0\0\0", b"\0\0\0\0\0\0", "org.apache.kafka.common.InvalidRecordException"),
        (b"\xff\xff\0\0", b"\0\0\0\0\0\0", "org.apache.kafka.common.InvalidRecordException"),
        (b"\0\0\0\x02", b"\0\0\0\0\0\0", "java.lang.IllegalArgumentException"),
        (b"\0\0\0\x63", b"\0\0\0\0\0\0", "java.lang.IllegalArgumentException"),
        (b"\0\0\0\0", None, "java.lang.NullPointerException"),
        (b"\0\0\0\0", b"\0", "java.nio.BufferUnderflowException"),
        (b"\0\0\0\0", b"\0\0\0\0", "java.nio.BufferUnderflowException"),
        (b"\0\0\0\0", b"\xff\xff\0\0\0\0", "org.apache.kafka.common.InvalidRecordException"),
    ],
)
def test_control_records_that_are_no_markers(key: bytes | None, value: bytes | None, exception: str) -> None:
    with pytest.raises(LoadError) as caught:
        state_of(control(key, value))
    assert caught.value.exception == exception
    assert isinstance(caught.value, InvalidRecordError) == exception.endswith("InvalidRecordException")


def test_an_empty_control_batch_says_nothing() -> None:
    empty = write_batch(b"", base_offset=0, last_offset=3, count=0, attributes=0x30, producer_id=1, producer_epoch=0)
    assert state_of(data(1, 0, 0, 0, transactional=True), empty).first_unstable_offset == 0


# snapshots ----------------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def files() -> MemoryFiles:
    files = MemoryFiles()
    files.mkdir(DIRECTORY)
    return files


def manager(files: MemoryFiles, expiration_ms: int = 100) -> ProducerStateManager:
    return ProducerStateManager(files, DIRECTORY, expiration_ms)


def snapshot(files: MemoryFiles, offset: int, *parts: bytes) -> None:
    made = manager(files)
    made.load_batches(batches(*parts))
    made.map_end_offset = offset
    made.take_snapshot()


def names(files: MemoryFiles) -> list[int]:
    return [int(name.partition(".")[0]) for name in files.list(DIRECTORY)]


def test_a_snapshot_is_taken_once(files: MemoryFiles) -> None:
    state = manager(files)
    assert state.take_snapshot() is None
    state.map_end_offset = 7
    assert state.take_snapshot() == f"{DIRECTORY}/00000000000000000007.snapshot"
    assert state.take_snapshot() is None
    assert state.latest_snapshot_offset == state.oldest_snapshot_offset == 7


def test_what_a_snapshot_holds_comes_back(files: MemoryFiles) -> None:
    snapshot(files, 5, data(1, 0, 0, 0, 3, timestamp=50), data(2, 4, 0, 3, 2, transactional=True, timestamp=60))
    state = manager(files)
    state.truncate_and_reload(0, 5, now_ms=80)
    assert state.map_end_offset == 5
    assert sorted(state.producers) == [1, 2]
    assert state.producers[1].batches[-1] == BatchMetadata(2, 2, 2, 50)
    assert state.ongoing_txns[3].producer_id == 2


def test_the_expired_are_not_loaded_unless_in_a_transaction(files: MemoryFiles) -> None:
    snapshot(
        files, 5, data(1, 0, 0, 0, 3, timestamp=50), data(2, 4, 0, 3, 2, transactional=True, timestamp=60), data(3, 0, 0, 5, timestamp=51)
    )
    state = manager(files)
    state.truncate_and_reload(0, 5, now_ms=150)
    assert sorted(state.producers) == [2, 3]
    state.remove_expired_producers(151)
    assert sorted(state.producers) == [2]


def test_a_corrupt_snapshot_is_deleted_and_the_one_before_taken(files: MemoryFiles) -> None:
    snapshot(files, 3, data(1, 0, 0, 0))
    snapshot(files, 6, data(2, 0, 0, 0))
    path = f"{DIRECTORY}/00000000000000000006.snapshot"
    files.write_all(path, files.read_all(path)[:-1] + b"?")
    state = manager(files)
    state.truncate_and_reload(0, 9, now_ms=5)
    assert (state.map_end_offset, sorted(state.producers), names(files)) == (3, [1], [3])


def test_snapshots_outside_of_the_log_are_deleted(files: MemoryFiles) -> None:
    for offset in (2, 5, 9, 12):
        snapshot(files, offset, data(1, 0, 0, 0))
    state = manager(files)
    state.truncate_and_reload(2, 9, now_ms=5)
    assert names(files) == [5, 9]
    assert state.map_end_offset == 9


def test_stray_snapshots(files: MemoryFiles) -> None:
    for offset in (3, 10, 15, 20, 25, 30):
        snapshot(files, offset, data(1, 0, 0, 0))
    manager(files).remove_stray_snapshots([10, 20])
    assert names(files) == [10, 20, 30]  # the newest one stays while it is above all segments
    manager(files).remove_stray_snapshots([10, 20, 40])
    assert names(files) == [10, 20]


def test_truncating_fully(files: MemoryFiles) -> None:
    snapshot(files, 3, data(1, 0, 0, 0))
    state = manager(files)
    state.truncate_fully_and_start_at(8)
    assert (names(files), state.map_end_offset, state.is_empty) == ([], 8, True)


def test_marking_for_deletion(files: MemoryFiles) -> None:
    snapshot(files, 3, data(1, 0, 0, 0))
    state, other = manager(files), manager(files)
    assert state.remove_and_mark_for_deletion(3) == f"{DIRECTORY}/00000000000000000003.snapshot.deleted"
    assert other.remove_and_mark_for_deletion(3) is None
    assert other.remove_and_mark_for_deletion(4) is None


def test_a_snapshot_is_written_over_without_cutting(files: MemoryFiles) -> None:
    """Kafka opens it the same way: the rest of a longer file stays, and its checksum does not match any more."""
    path = f"{DIRECTORY}/00000000000000000003.snapshot"
    files.write_all(path, b"x" * 100)
    snapshot(files, 3)
    assert files.stat(path).size == 100
    state = manager(files)
    state.truncate_and_reload(0, 3, now_ms=0)
    assert names(files) == []


def test_a_snapshot_without_an_offset_in_its_name(files: MemoryFiles) -> None:
    files.write_all(f"{DIRECTORY}/foo.snapshot", b"")
    with pytest.raises(LoadError, match=r"the file foo\.snapshot does not begin with an offset"):
        manager(files)


# Java's order -------------------------------------------------------------------------------------------------------------------------


def test_small_ids_stand_in_order() -> None:
    order = HashOrder()
    for key in (5, 3, 11, 0):
        order.put(key)
    assert list(order) == [0, 3, 5, 11]


def test_colliding_ids_stand_in_order_of_insertion() -> None:
    order = HashOrder()
    for key in (33, 1, 17):
        order.put(key)
    assert list(order) == [33, 1, 17]
    first = HashOrder()
    for key in (33, 1, 17):
        first.compute_if_absent(key)
    assert list(first) == [17, 1, 33]


def test_the_table_grows_at_three_quarters() -> None:
    order = HashOrder()
    for key in (16, *range(11)):
        order.put(key)
    assert list(order)[:2] == [16, 0]
    order.put(11)
    assert list(order)[:2] == [0, 1]
    order.clear()
    order.put(16)
    order.put(0)
    assert list(order) == [0, 16]  # it does not shrink


def test_a_long_chain_makes_a_small_table_grow() -> None:
    order = HashOrder()
    for number in range(9):
        order.put(16 * number)
    order.put(1)
    assert list(order)[:3] == [0, 32, 64]


def test_removing() -> None:
    order = HashOrder()
    for key in (33, 1, 17):
        order.put(key)
    order.remove(1)
    order.put(1)
    assert list(order) == [33, 17, 1]


def test_a_written_snapshot_has_that_order(files: MemoryFiles) -> None:
    ids = [17, 1, 33, 2]
    state = manager(files)
    for number, producer in enumerate(ids):
        state.load_batches(batches(data(producer, 0, 0, number)))
    state.map_end_offset = 4
    path = state.take_snapshot()
    assert path is not None
    assert [entry.producer_id for entry in read_producer_snapshot(files.read_all(path))] == [17, 1, 33, 2]


def test_the_order_has_every_key_once() -> None:
    rng = random.Random(7)
    keys = {rng.getrandbits(63) for _ in range(500)} | set(range(50))
    order = HashOrder()
    for key in keys:
        order.put(key) if rng.random() < 0.5 else order.compute_if_absent(key)
    assert sorted(order) == sorted(keys)
