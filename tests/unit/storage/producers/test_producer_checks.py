"""What an append must satisfy because of its producers: sequence numbers, duplicates, epochs, transactions and their verification."""

from __future__ import annotations

import pytest

from kops.errors import ApiError
from kops.files import MemoryFiles
from kops.records import Batch, BatchBuilder, BytesSource
from kops.records.validation.validate import AppendOrigin
from kops.storage.producers.append import TV_UNKNOWN
from kops.storage.producers.checks import ProducerAnalysis, analyze_append
from kops.storage.producers.state import ActiveProducer, ProducerState, ProducerStateManager
from kops.storage.producers.verification import NO_GUARD, VerificationGuard
from kops.storage.segment_files.file_records import LogView

CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION
INT_MAX = 2**31 - 1
SHORT_MAX = 2**15 - 1
OUT_OF_ORDER, INVALID_EPOCH = "OUT_OF_ORDER_SEQUENCE_NUMBER", "INVALID_PRODUCER_EPOCH"


class Log:
    """A log's producers, and the offset of the next batch."""

    def __init__(self) -> None:
        self.state = ProducerState()
        self.state.topic_partition = "t-0"
        self.end = 0

    def append(
        self, *parts: bytes, origin: AppendOrigin = CLIENT, guard: VerificationGuard = NO_GUARD, version: int = TV_UNKNOWN
    ) -> ProducerAnalysis:
        batches = list(LogView(BytesSource(b"".join(parts)), "x.log").batches())
        analysis = analyze_append(self.state, batches, origin=origin, guard=guard, transaction_version=version)
        if analysis.duplicate is None:
            for info in analysis.updated:
                self.state.update(info)
            for txn in analysis.completed:
                self.state.complete_txn(txn)
            self.end = batches[-1].next_offset
        return analysis

    def data(self, sequence: int, count: int = 1, *, epoch: int = 0, offset: int | None = None, producer: int = 7) -> ProducerAnalysis:
        return self.append(self.batch(sequence, count, epoch=epoch, offset=offset, producer=producer))

    def batch(
        self, sequence: int, count: int = 1, *, epoch: int = 0, offset: int | None = None, producer: int = 7, transactional: bool = False
    ) -> bytes:
        builder = BatchBuilder(
            base_offset=self.end if offset is None else offset,
            producer_id=producer,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=transactional,
        )
        for _ in range(count):
            builder.append(1000, None, b"v")
        return builder.build()

    def begin(self, sequence: int = 0, *, epoch: int = 0, supports_epoch_bump: bool = False) -> None:
        guard = self.state.start_verification(7, sequence, epoch, supports_epoch_bump=supports_epoch_bump, now_ms=0)
        self.append(self.batch(sequence, epoch=epoch, transactional=True), guard=guard)

    def marker(
        self, epoch: int = 0, *, coordinator_epoch: int = 3, version: int = 1, origin: AppendOrigin = COORDINATOR
    ) -> ProducerAnalysis:
        builder = BatchBuilder(base_offset=self.end, producer_id=7, producer_epoch=epoch, transactional=True, control=True)
        builder.append_end_txn_marker(1000, True, coordinator_epoch)
        return self.append(builder.build(), origin=origin, version=version)


@pytest.fixture
def log() -> Log:
    return Log()


def refused(code: str, message: str) -> pytest.RaisesExc[ApiError]:
    return pytest.RaisesExc(ApiError, check=lambda error: (error.name, error.message) == (code, message))


# sequences and duplicates -------------------------------------------------------------------------------------------------------------


def test_sequences_follow_each_other(log: Log) -> None:
    log.data(0, 3)
    log.data(3)
    text = (
        "Out of order sequence number for producer 7 at offset 4 in partition t-0: 5 (incoming seq. number), "
        "3 (current end sequence number)"
    )
    with refused(OUT_OF_ORDER, text):
        log.data(5)
    log.data(4)


def test_an_unknown_producer_begins_anywhere(log: Log) -> None:
    log.data(17)
    log.data(18)


def test_sequences_wrap(log: Log) -> None:
    log.data(INT_MAX - 1, 2)
    log.data(0)
    log.data(1)


def test_within_one_append(log: Log) -> None:
    log.append(log.batch(0, 2, offset=0), log.batch(2, offset=2))
    with pytest.raises(ApiError, match=r"5 \(incoming seq. number\), 3 \(current"):
        log.append(log.batch(3, offset=3), log.batch(5, offset=4))
    assert log.state.producers[7].last_sequence == 2


def test_a_new_epoch_begins_at_zero(log: Log) -> None:
    log.data(0)
    text = (
        "Invalid sequence number for new epoch of producer 7at offset 1 in partition t-0: 1 (request epoch), 4 (seq. number), "
        "0 (current producer epoch)"
    )
    with refused(OUT_OF_ORDER, text):
        log.data(4, epoch=1)
    log.data(0, epoch=1)


def test_after_a_marker_with_a_new_epoch_the_sequence_begins_at_zero(log: Log) -> None:
    log.begin(0)
    log.marker(1)
    with pytest.raises(ApiError, match=r"1 \(incoming seq. number\), -1 \(current end sequence number\)"):
        log.data(1, epoch=1)
    log.data(0, epoch=1)


def test_an_older_epoch(log: Log) -> None:
    log.data(0, epoch=5)
    text = "Epoch of producer 7 at offset 1 in t-0 is 4, which is < the last seen epoch 5 (TV-1)"
    with refused(INVALID_EPOCH, text):
        log.data(0, epoch=4)
    with refused(INVALID_EPOCH, text):
        log.append(log.batch(0, epoch=4), origin=COORDINATOR)


def test_the_last_five_batches_are_recognised(log: Log) -> None:
    for number in range(7):
        log.data(2 * number, 2)
    for number in range(2, 7):
        duplicate = log.data(2 * number, 2).duplicate
        assert duplicate is not None
        assert (duplicate.first_offset, duplicate.last_offset, duplicate.timestamp) == (2 * number, 2 * number + 1, 1000)
    for sequence, count in ((0, 2), (12, 1), (11, 2)):
        with pytest.raises(ApiError, match="Out of order sequence number"):
            log.data(sequence, count)


def test_duplicates_only_of_clients(log: Log) -> None:
    log.data(0)
    assert log.append(log.batch(0), origin=REPLICATION).duplicate is None
    assert log.append(log.batch(0), origin=COORDINATOR).duplicate is None


def test_a_replica_takes_what_its_leader_has(log: Log) -> None:
    log.data(0, epoch=5)
    log.append(log.batch(100, epoch=3), origin=REPLICATION)
    log.marker(1, coordinator_epoch=9, version=TV_UNKNOWN, origin=REPLICATION)
    log.marker(1, coordinator_epoch=2, version=TV_UNKNOWN, origin=REPLICATION)
    assert log.state.active_producers() == [ActiveProducer(7, 1, -1, 1000, 2, -1)]


def test_batches_without_a_producer_say_nothing(log: Log) -> None:
    analysis = log.append(log.batch(-1, producer=-1, epoch=-1))
    assert (analysis.updated, analysis.completed, analysis.duplicate) == ([], [], None)


# transactions -------------------------------------------------------------------------------------------------------------------------


def test_a_plain_batch_within_a_transaction(log: Log) -> None:
    log.begin()
    text = "Expected transactional write from producer 7 at offset (offset=1, segment=[-1:-1]) in partition t-0"
    with refused("INVALID_TXN_STATE", text):
        log.data(1)


def test_a_marker_of_an_older_epoch_or_coordinator(log: Log) -> None:
    log.begin(epoch=2)
    with refused(INVALID_EPOCH, "Epoch of producer 7 is 1, which is smaller than the last seen epoch 2"):
        log.marker(1)
    log.marker(2, coordinator_epoch=5)
    text = "Invalid coordinator epoch for producerId 7 at offset 2 in partition t-0: 4 (zombie), 5 (current)"
    with refused("TRANSACTION_COORDINATOR_FENCED", text):
        log.marker(2, coordinator_epoch=4)
    log.marker(2, coordinator_epoch=5)


def test_a_marker_of_version_2_has_a_later_epoch(log: Log) -> None:
    log.begin(epoch=2)
    text = "Epoch of producer 7 at offset 1 in t-0 is 2, which is <= the last seen epoch 2 (TV2)"
    with refused(INVALID_EPOCH, text):
        log.marker(2, version=2)
    assert [txn.first_offset for txn in log.marker(3, version=2).completed] == [0]
    assert log.marker(3, version=2).completed == []  # the same marker again, which changes nothing


def test_the_largest_epoch_may_end_its_own_transaction(log: Log) -> None:
    log.begin(epoch=SHORT_MAX)
    assert len(log.marker(SHORT_MAX, version=2).completed) == 1


def test_a_marker_needs_a_version(log: Log) -> None:
    text = "transactionVersion must be explicitly specified, cannot use default value TV_UNKNOWN for origin COORDINATOR"
    with refused("UNKNOWN_SERVER_ERROR", text):
        log.marker(version=TV_UNKNOWN)


def test_a_broken_marker(log: Log) -> None:
    builder = BatchBuilder(base_offset=0, producer_id=7, producer_epoch=0, transactional=True, control=True)
    builder.append(1, b"\xff\xff\0\0", b"\0\0\0\0\0\0")
    with pytest.raises(ApiError) as caught:
        log.append(builder.build(), origin=REPLICATION)
    assert caught.value.name == "INVALID_RECORD"


# verification -------------------------------------------------------------------------------------------------------------------------

UNVERIFIED = "Record was not part of an ongoing transaction"


def test_the_first_batch_brings_a_guard(log: Log) -> None:
    with refused("INVALID_TXN_STATE", UNVERIFIED):
        log.append(log.batch(0, transactional=True))
    log.begin()
    log.append(log.batch(1, transactional=True))  # continues without verification
    assert log.state.start_verification(7, 2, 0, supports_epoch_bump=False, now_ms=0) is NO_GUARD


def test_a_guard_fits_one_transaction(log: Log) -> None:
    old = log.state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=0)
    log.marker()
    assert log.state.verification_guard(7) is NO_GUARD
    new = log.state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=0)
    assert not new.verify(old)
    with refused("INVALID_TXN_STATE", UNVERIFIED):
        log.append(log.batch(0, transactional=True), guard=old)
    log.append(log.batch(0, transactional=True), guard=new)


def test_without_verification(log: Log) -> None:
    log.state.verification_enabled = False
    log.append(log.batch(0, transactional=True))
    assert log.state.first_unstable_offset == 0


def test_an_older_epoch_is_told_before_the_missing_guard(log: Log) -> None:
    log.data(0, epoch=3)
    text = "Epoch of producer 7 is 2, which is smaller than the last seen epoch 3"
    with refused(INVALID_EPOCH, text):
        log.append(log.batch(0, epoch=2, transactional=True))
    with refused(INVALID_EPOCH, text):
        log.state.start_verification(7, 0, 2, supports_epoch_bump=False, now_ms=0)


def test_a_lower_sequence_is_waited_for(log: Log) -> None:
    for sequence in (5, 2, 4):
        guard = log.state.start_verification(7, sequence, 0, supports_epoch_bump=False, now_ms=0)
    text = "Out of order sequence number for producer 7 at offset 0 in partition t-0: 4 (incoming seq. number), 2 (earliest seen sequence)"
    with refused(OUT_OF_ORDER, text):
        log.append(log.batch(4, transactional=True), guard=guard)
    log.append(log.batch(2, transactional=True), guard=guard)


def test_a_later_epoch_has_its_own_lowest_sequence(log: Log) -> None:
    guard = log.state.start_verification(7, 2, 0, supports_epoch_bump=False, now_ms=0)
    assert log.state.start_verification(7, 6, 1, supports_epoch_bump=False, now_ms=0) is guard
    assert (log.state.verifications[7].lowest_sequence, log.state.verifications[7].epoch) == (6, 1)


def test_version_2_begins_at_zero(log: Log) -> None:
    text = (
        "Invalid sequence number for producer 7 at offset 0 in partition t-0: 3 (incoming seq. number). "
        "Expected sequence 0 for transactions v2 idempotent producer with no existing state."
    )
    with refused(OUT_OF_ORDER, text):
        log.begin(3, supports_epoch_bump=True)
    log.begin(0, supports_epoch_bump=True)


def test_a_marker_leaves_the_verification_of_the_next_transaction(log: Log) -> None:
    log.begin(supports_epoch_bump=True)
    guard = log.state.start_verification(7, 0, 1, supports_epoch_bump=True, now_ms=0)
    log.marker(1, version=2)
    assert log.state.verification_guard(7) is guard
    log.append(log.batch(0, epoch=1, transactional=True), guard=guard)
    assert log.state.verification_guard(7) is NO_GUARD


# time ---------------------------------------------------------------------------------------------------------------------------------


def test_a_late_transaction(log: Log) -> None:
    assert not log.state.has_late_transaction(10**9, 500)
    log.begin()
    assert not log.state.has_late_transaction(1000 + 500 + 300_000, 500)
    assert log.state.has_late_transaction(1001 + 500 + 300_000, 500)
    log.marker()
    assert not log.state.has_late_transaction(10**9, 500)


def test_verifications_expire() -> None:
    files = MemoryFiles()
    files.mkdir("/t-0")
    state = ProducerStateManager(files, "/t-0", expiration_ms=100)
    assert state.topic_partition == "t-0"
    for producer, now_ms in ((1, 50), (2, 51)):
        state.start_verification(producer, 0, 0, supports_epoch_bump=False, now_ms=now_ms)
    state.remove_expired_producers(150)
    assert list(state.verifications) == [2]


def test_new_producers_stand_as_in_javas_maps(log: Log) -> None:
    """The producers of one append come out of one map (computeIfAbsent adds at the front of a bucket) and go into another one (which adds
    at the end).
    """
    parts = [log.batch(0, offset=number, producer=producer) for number, producer in enumerate((1, 17, 33))]
    log.append(*parts)
    assert [producer.producer_id for producer in log.state.active_producers()] == [33, 17, 1]


def test_snapshots_by_offset() -> None:
    files = MemoryFiles()
    files.mkdir("/t-0")
    state = ProducerStateManager(files, "/t-0", expiration_ms=100)
    for offset in (3, 6, 9):
        state.map_end_offset = offset
        state.take_snapshot()
    assert state.snapshot_path(6) == "/t-0/00000000000000000006.snapshot"
    files.rename("/t-0", "/t-0.x-delete")
    state.update_directory("/t-0.x-delete")
    assert state.snapshot_path(9) == "/t-0.x-delete/00000000000000000009.snapshot"


def batches_of(data: bytes) -> list[Batch]:
    return list(LogView(BytesSource(data), "x.log").batches())


def test_a_duplicate_needs_the_same_epoch(log: Log) -> None:
    log.data(0)
    assert log.state.find_duplicate_batch(batches_of(log.batch(0, epoch=1))[0]) is None
    assert log.state.find_duplicate_batch(batches_of(log.batch(0, producer=8))[0]) is None
