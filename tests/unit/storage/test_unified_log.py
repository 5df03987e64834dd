"""Appending to a log: offsets, checks, duplicates, transactions, what a follower accepts, and the effects of a failing disk."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest

from kops.errors import ApiError
from kops.files import MemoryFiles
from kops.files.faulty import FaultyFiles
from kops.records.batch import Batch
from kops.records.validation.validate import AppendOrigin
from kops.storage.failures.load_errors import KafkaStorageError, LoadError
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, write_producer_snapshot
from kops.storage.log_append import OffsetsOutOfOrderError, UnexpectedAppendOffsetError, memory_batches
from kops.storage.segment_files.transaction_index import AbortedTxn
from tests.support.logs.twins.open_log import DIRECTORY, NOW, OpenLog, batch, marker

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


def stored(log: OpenLog) -> bytes:
    return log.files.read_all(f"{DIRECTORY}/{0:020d}.log")


def refused(name: str, log: OpenLog, data: bytes, **arguments: object) -> ApiError:
    end = log.log.log_end_offset
    with pytest.raises(ApiError) as error:
        log.log.append_as_leader(data, 0, **arguments)  # type: ignore[arg-type]
    assert error.value.name == name
    assert log.log.log_end_offset == end
    return error.value


class TestLeader:
    def test_offsets_are_given_in_order(self) -> None:
        log = OpenLog()
        first, second = log.append(batch(3), epoch=5), log.append(batch(2), epoch=5)
        assert (first.first_offset, first.last_offset, first.message_count) == (0, 2, 3)
        assert (second.first_offset, second.last_offset, second.max_timestamp, second.log_append_time_ms) == (3, 4, NOW, -1)
        on_disk = list(memory_batches(stored(log)))
        assert [(one.base_offset, one.last_offset, one.partition_leader_epoch) for one in on_disk] == [(0, 2, 5), (3, 4, 5)]
        assert log.log.epochs.entries == (EpochEntry(5, 0),)
        assert log.log.size == len(stored(log))

    def test_the_time_of_the_log(self) -> None:
        log = OpenLog(message_timestamp_type="LogAppendTime")
        info = log.append(batch(timestamp=5))
        assert (info.max_timestamp, info.log_append_time_ms) == (NOW, NOW)
        assert Batch(stored(log)).max_timestamp == NOW

    def test_what_is_empty_or_cut_writes_nothing(self) -> None:
        log = OpenLog()
        for data in (b"", b"\0" * 11, batch()[:-1], batch()[:16]):
            assert log.log.append_as_leader(data, 0).valid_bytes == 0
        assert log.log.log_end_offset == 0

    def test_a_cut_batch_behind_a_whole_one_is_left_out(self) -> None:
        log = OpenLog()
        assert log.log.append_as_leader(batch(2) + batch()[:-1], 0).last_offset == 1
        assert len(stored(log)) == len(batch(2))

    def test_corrupt_bytes(self) -> None:
        log = OpenLog()
        data = bytearray(batch())
        data[-1] ^= 1
        assert "stored crc" in str(refused("CORRUPT_MESSAGE", log, bytes(data)))
        data = bytearray(batch())
        data[16] = 3
        assert str(refused("CORRUPT_MESSAGE", log, bytes(data))) == "Invalid magic found in record: 3"
        data[16] = 0x80
        assert str(refused("CORRUPT_MESSAGE", log, bytes(data))) == "Invalid magic found in record: -128"
        data = bytearray(batch())
        data[8:12] = (13).to_bytes(4, "big")
        assert "13 is less than the minimum" in str(refused("CORRUPT_MESSAGE", log, bytes(data)))
        data[8:12] = (20).to_bytes(4, "big")
        refused("CORRUPT_MESSAGE", log, bytes(data[:32]))

    def test_a_batch_larger_than_allowed(self) -> None:
        log = OpenLog(max_message_bytes=len(batch()))
        log.append()
        refused("MESSAGE_TOO_LARGE", log, batch(2))
        log.log.append_as_follower(batch(2, base_offset=1, partition_leader_epoch=0), 0)
        assert log.log.log_end_offset == 3

    def test_a_batch_larger_than_a_segment(self) -> None:
        log = OpenLog(internal_segment_bytes=len(batch()))
        refused("RECORD_LIST_TOO_LARGE", log, batch(2))
        log.append()

    def test_what_the_broker_makes_larger_is_measured_again(self) -> None:
        packed = batch(30, codec="gzip", value=b"0" * 200)
        log = OpenLog(compression_type="uncompressed", max_message_bytes=len(packed))
        refused("MESSAGE_TOO_LARGE", log, packed)

    def test_a_client_names_no_offsets(self) -> None:
        refused("INVALID_RECORD", OpenLog(), batch(base_offset=1))

    def test_raft_gives_offsets_and_epoch_itself(self) -> None:
        log = OpenLog()
        data = batch(2, base_offset=7, partition_leader_epoch=3)
        assert log.log.append_as_leader(data, 3, origin=AppendOrigin.RAFT_LEADER).last_offset == 8
        assert log.log.log_end_offset == 9
        later = batch(base_offset=9, partition_leader_epoch=3)
        refused("INVALID_RECORD", log, later, origin=AppendOrigin.RAFT_LEADER)

    def test_keys_are_required_where_the_log_is_compacted(self) -> None:
        from kops.records import BatchBuilder

        builder = BatchBuilder()
        builder.append(NOW, None, b"v")
        assert refused("INVALID_RECORD", OpenLog(cleanup_policy=("compact",)), builder.build()).record_errors

    def test_settings_change_at_run_time(self) -> None:
        log = OpenLog()
        former = log.log.update_config(OpenLog(max_message_bytes=60, message_timestamp_type="LogAppendTime").config)
        assert former is log.config
        refused("MESSAGE_TOO_LARGE", log, batch())
        log.log.update_config(OpenLog(message_timestamp_type="LogAppendTime").config)
        assert log.append(batch(timestamp=9)).max_timestamp == NOW

    def test_flush_by_messages(self) -> None:
        log = OpenLog(flush_messages=3)
        log.append(batch(2))
        assert log.log.recovery_point == 0
        log.now_ms += 5
        log.append()
        assert (log.log.recovery_point, log.log.last_flush_ms) == (3, NOW + 5)

    def test_an_old_format_forgets_the_epochs(self) -> None:
        log = OpenLog()
        log.append(epoch=2)
        old = batch(magic=1, base_offset=1)
        log.log.append_as_follower(old, 2)
        assert log.log.epochs.entries == ()
        assert "message format v1" in log.warnings[0]


class TestProducers:
    def test_a_batch_that_comes_again_is_answered_with_the_first(self) -> None:
        log = OpenLog(message_timestamp_type="LogAppendTime")
        for number in range(5):
            log.append(batch(2, producer_id=9, sequence=2 * number))
            log.now_ms += 10
        size = log.log.size
        again = log.append(batch(2, producer_id=9, sequence=2))
        assert (again.first_offset, again.last_offset, again.log_append_time_ms, again.is_duplicate) == (2, 3, NOW + 10, True)
        assert (log.log.log_end_offset, log.log.size) == (10, size)

    def test_a_gap_in_the_sequence(self) -> None:
        log = OpenLog()
        log.append(batch(2, producer_id=9, sequence=0, epoch=1))
        refused("OUT_OF_ORDER_SEQUENCE_NUMBER", log, batch(producer_id=9, sequence=3, epoch=1))
        refused("INVALID_PRODUCER_EPOCH", log, batch(producer_id=9, sequence=2, epoch=0))

    def test_a_transaction_must_be_verified(self) -> None:
        log = OpenLog()
        refused("INVALID_TXN_STATE", log, batch(producer_id=9, sequence=0, transactional=True))
        log.begin(9)
        assert log.log.first_unstable_offset == 0

    def test_last_stable_offset(self) -> None:
        log = OpenLog()
        log.append()
        log.begin(1)
        log.begin(2)
        assert (log.log.first_unstable_offset, log.log.last_stable_offset) == (1, 1)
        log.end(1, commit=False)
        assert (log.log.first_unstable_offset, log.log.last_stable_offset) == (2, 2)
        log.end(2, commit=True, replicated=False)
        assert log.log.last_stable_offset == 2
        log.log.update_high_watermark(5)
        assert (log.log.first_unstable_offset, log.log.last_stable_offset) == (None, 5)

    def test_an_aborted_transaction_is_in_the_index(self) -> None:
        log = OpenLog()
        log.begin(1, count=2)
        log.begin(2)
        log.end(1, commit=False)
        log.end(2, commit=True)
        assert list(log.log.segments.active.txn_index.entries()) == [AbortedTxn(1, 0, 3, 2)]

    def test_producers_expire(self) -> None:
        log = OpenLog()
        log.append(batch(producer_id=9, sequence=0))
        log.run(86_400_000 - 1)
        assert 9 in log.log.producers.producers
        log.run(600_000)
        assert 9 not in log.log.producers.producers

    def test_a_transaction_that_is_open_too_long(self) -> None:
        log = OpenLog()
        log.begin(1)
        log.now_ms += 900_000 + 300_000
        assert not log.log.has_late_transaction()
        log.now_ms += 1
        assert log.log.has_late_transaction()


class TestFollower:
    def test_offsets_are_taken_as_they_are(self) -> None:
        log = OpenLog()
        info = log.log.append_as_follower(batch(2, base_offset=10, partition_leader_epoch=4), 4)
        assert (info.first_offset, info.last_offset, info.last_leader_epoch) == (10, 11, 4)
        assert log.log.log_end_offset == 12
        assert log.log.epochs.entries == (EpochEntry(4, 10),)
        assert log.log.high_watermark == 0

    def test_what_is_there_already(self) -> None:
        log = OpenLog()
        log.log.append_as_follower(batch(2, base_offset=10, partition_leader_epoch=0), 0)
        with pytest.raises(UnexpectedAppendOffsetError, match="First offset 11 is less than the next offset 12") as error:
            log.log.append_as_follower(batch(3, base_offset=11, partition_leader_epoch=0), 0)
        assert (error.value.first_offset, error.value.last_offset) == (11, 13)
        with pytest.raises(UnexpectedAppendOffsetError, match="Last offset of the first batch 5"):
            log.log.append_as_follower(batch(magic=1, base_offset=5), 0)

    def test_offsets_that_go_back(self) -> None:
        log = OpenLog()
        data = batch(2, base_offset=3, partition_leader_epoch=0) + batch(base_offset=4, partition_leader_epoch=0)
        with pytest.raises(OffsetsOutOfOrderError, match="3,4,4"):
            log.log.append_as_follower(data, 0)

    def test_batches_of_a_later_epoch_wait(self) -> None:
        log = OpenLog()
        data = batch(base_offset=0, partition_leader_epoch=1) + batch(base_offset=1, partition_leader_epoch=2)
        info = log.log.append_as_follower(data + batch(base_offset=2, partition_leader_epoch=1), 1)
        assert (info.last_offset, log.log.log_end_offset) == (0, 1)
        assert log.log.append_as_follower(batch(base_offset=1, partition_leader_epoch=2), 1).valid_bytes == 0

    def test_sequences_are_not_checked(self) -> None:
        log = OpenLog()
        for number, sequence in enumerate((5, 5, 0)):
            data = batch(base_offset=number, partition_leader_epoch=0, producer_id=1, sequence=sequence)
            assert not log.log.append_as_follower(data, 0).is_duplicate
        assert log.log.log_end_offset == 3

    def test_markers_end_transactions(self) -> None:
        leader, follower = OpenLog(), OpenLog()
        leader.begin(1)
        leader.end(1, commit=False)
        leader.append()
        follower.log.append_as_follower(stored(leader), 0)
        assert stored(follower) == stored(leader)
        assert list(follower.log.segments.active.txn_index.entries()) == [AbortedTxn(1, 0, 1, 2)]
        assert follower.log.last_stable_offset == 0
        assert follower.log.maybe_update_high_watermark(3) == 3
        assert follower.log.maybe_update_high_watermark(9) is None
        assert follower.log.last_stable_offset == 3


class TestTopicId:
    def test_it_is_written_by_the_scheduler(self) -> None:
        log = OpenLog()
        log.log.assign_topic_id(TOPIC_ID)
        assert "partition.metadata" not in log.names()
        log.run()
        assert log.files.read_all(f"{DIRECTORY}/partition.metadata") == f"version: 0\ntopic_id: {TOPIC_ID}".encode()
        log.log.close()
        assert log.open(had_clean_shutdown=True).topic_id == TOPIC_ID

    def test_an_append_writes_it_first(self) -> None:
        log = OpenLog()
        log.log.assign_topic_id(TOPIC_ID)
        log.append()
        assert "partition.metadata" in log.names()

    def test_another_id_is_refused(self) -> None:
        log = OpenLog()
        log.log.assign_topic_id(TOPIC_ID)
        log.log.assign_topic_id(TOPIC_ID)
        with pytest.raises(ApiError, match="already contained topic ID"):
            log.log.assign_topic_id("BBBBBBBBBBBBBBBBBBBBBQ")


class RefusingFiles(FaultyFiles):
    """Files that fail every operation whose description contains `refuse`, if that is set."""

    refuse = ""
    number = errno.EIO

    def step(self, what: str, part: Callable[[int], None] | None = None) -> None:
        if self.refuse and self.refuse in what:
            raise OSError(self.number, "refused", what)
        super().step(what, part)


class TestFailingDisk:
    def log(self) -> tuple[OpenLog, RefusingFiles]:
        files = RefusingFiles(MemoryFiles(now_ms=lambda: NOW))
        return OpenLog(files), files

    def test_a_full_disk_takes_the_directory_offline(self) -> None:
        log, files = self.log()
        log.append(batch(2))
        files.refuse, files.number = "write", errno.ENOSPC
        with pytest.raises(KafkaStorageError, match="Error while appending records to t-0 in dir /logs"):
            log.append()
        assert log.failures.take_next() == "/logs"
        assert log.log.log_end_offset == 2
        with pytest.raises(KafkaStorageError, match="already offline"):
            log.append()

    def test_the_end_grows_where_the_transaction_index_fails(self) -> None:
        log, files = self.log()
        log.begin(1)
        files.refuse = "txnindex"
        with pytest.raises(KafkaStorageError):
            log.end(1, commit=False)
        assert log.log.log_end_offset == 2
        assert log.failures.has_offline("/logs")

    @pytest.mark.parametrize("kind", [".index", ".timeindex"])
    def test_the_end_grows_where_an_index_fails(self, kind: str) -> None:
        files = RefusingFiles(MemoryFiles(now_ms=lambda: NOW))
        log = OpenLog(files, index_interval_bytes=0)
        log.append()
        files.refuse = kind
        with pytest.raises(KafkaStorageError):
            log.append(batch(timestamp=NOW + 1))
        assert log.log.log_end_offset == 2
        assert log.failures.has_offline("/logs")

    def test_a_flush_that_fails_leaves_the_recovery_point(self) -> None:
        log, files = self.log()
        log.append()
        files.refuse = "sync"
        with pytest.raises(KafkaStorageError):
            log.log.flush(force_flush_active_segment=True)
        assert log.log.recovery_point == 0

    def test_epochs_that_can_not_be_written(self) -> None:
        log, files = self.log()
        files.refuse = "leader-epoch"
        with pytest.raises(KafkaStorageError):
            log.append()
        assert log.failures.has_offline("/logs")

    def test_what_a_client_did_wrong_is_no_failure(self) -> None:
        log = OpenLog()
        refused("INVALID_RECORD", log, batch(base_offset=1))
        assert not log.failures.offline


def test_closed_files_are_not_written_to() -> None:
    log = OpenLog()
    log.append()
    log.log.close_handlers()
    with pytest.raises(KafkaStorageError, match="already closed"):
        log.append()
    with pytest.raises(KafkaStorageError, match="already closed"):
        log.log.truncate_to(0)
    assert not log.failures.offline


def test_a_task_behind_the_logs_deletion_is_no_failure_of_the_disk() -> None:
    log = OpenLog()
    log.append()
    log.log.roll()
    log.log.delete()
    log.scheduler.run_due()
    assert not log.failures.offline


def test_a_marker_needs_its_transaction_version() -> None:
    log = OpenLog()
    refused("UNKNOWN_SERVER_ERROR", log, marker(1, commit=True), origin=AppendOrigin.COORDINATOR)


def test_an_epoch_below_zero_is_refused() -> None:
    log = OpenLog()
    with pytest.raises(LoadError, match="IllegalArgument"):
        log.log.append_as_follower(batch(), 0)


class TestWhatIsReadBack:
    def test_a_verification_ends_where_a_truncation_reads_its_producer_back(self) -> None:
        log = OpenLog()
        log.append()
        log.begin(1)
        log.end(1, commit=True)
        log.append()
        log.append()
        guard = log.log.maybe_start_transaction_verification(1, 1, 0, supports_epoch_bump=False)
        log.log.truncate_to(4)
        data = batch(1, producer_id=1, epoch=0, sequence=1, transactional=True)
        error = refused("INVALID_TXN_STATE", log, data, verification_guard=guard)
        assert error.message == "Record was not part of an ongoing transaction"

    @pytest.mark.parametrize(
        ("position", "value", "words"),
        [(8, b"\0\0\0\3", "Record size 3 is less than the minimum record overhead (14)"), (16, b"\7", "Invalid magic found in record: 7")],
    )
    def test_a_follower_looks_behind_what_it_does_not_take(self, position: int, value: bytes, words: str) -> None:
        log = OpenLog()
        mine, later = batch(1, base_offset=0, partition_leader_epoch=1), batch(1, base_offset=1, partition_leader_epoch=5)
        wrong = bytearray(batch(1, base_offset=2, partition_leader_epoch=5))
        wrong[position : position + len(value)] = value
        with pytest.raises(ApiError, match=words.replace("(", ".").replace(")", ".")) as error:
            log.log.append_as_follower(mine + later + bytes(wrong), 1)
        assert (error.value.name, log.log.log_end_offset) == ("CORRUPT_MESSAGE", 0)
        assert log.log.append_as_follower(mine + later, 1).last_offset == 0

    @pytest.mark.parametrize(("timestamp", "stays"), [(-(1 << 63), True), (NOW - 86_400_000, False), (NOW - 86_400_000 + 1, True)])
    def test_a_producer_expires_by_javas_difference_of_times(self, timestamp: int, stays: bool) -> None:
        log = OpenLog()
        log.append()
        log.log.close()
        (name,) = (name for name in log.names() if name.endswith(".snapshot"))
        entry = ProducerSnapshotEntry(7, 0, 0, 0, 0, timestamp, -1, -1)
        log.files.write_all(f"{DIRECTORY}/{name}", write_producer_snapshot([entry]))
        log.open(had_clean_shutdown=True, recovery_point=1)
        assert [each.producer_id for each in log.log.producers.active_producers()] == [7] * stays
