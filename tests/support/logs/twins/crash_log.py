"""Random histories of a log on `CrashFiles`, and checks of what a crash leaves of them.

history = History(seed=3)
history.run(40)
for at in range(len(history.files.operations) + 1):
    history.check(history.files.after_power_loss("random", seed=at, at=at), at)
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from kops.config.topic import TopicConfig
from kops.files import CrashFiles, Files, MemoryFiles
from kops.files.crash import Fault, Operation
from kops.forensics.verify.run import verify
from kops.records import Batch, BatchBuilder
from kops.records.validation.validate import AppendOrigin
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.names import LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT
from kops.storage.local_log import LocalLog
from kops.storage.log_append import memory_batches
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.producers.state import ProducerState
from kops.storage.scheduler import Scheduler
from kops.storage.segment_files.file_records import FileRecords
from kops.storage.segments.segment import LogSegment
from kops.storage.unified_log import UnifiedLog

LOG_DIR: Final = "/logs"
DIRECTORY: Final = "/logs/t-0"
NAME: Final = TopicPartition("t", 0)
NOW: Final = 1_700_000_000_000
NOTHING: Final = 1 << 62
CONFIG: Final = TopicConfig(
    internal_segment_bytes=900,
    index_interval_bytes=150,
    segment_index_bytes=480,
    file_delete_delay_ms=50,
    retention_bytes=3000,
    retention_ms=-1,
)

# LogLoader.load cuts the leader epochs at the checkpoint of the log's start, not at the first segment. If segments are gone and that
# checkpoint was not written any more, the file of leader epochs still begins below the log.
LEFT_BY_A_CRASH: Final = frozenset(("log-start-missing",))

Branch = tuple[tuple[int, int, bytes], ...]
"""The batches of the log: first offset, last offset, bytes."""


@dataclass
class Mark:
    """What was true at the end of a step: the number of operations, what was acknowledged as flushed, the log's bounds and its batches.

    `cut` is the offset to which the step truncated the log.
    """

    operations: int
    step: str
    flushed: int
    start: int
    end: int
    branch: Branch
    cut: int = NOTHING


@dataclass
class History:
    """A log that goes through random steps. `fault` and `posix` are those of `CrashFiles`."""

    seed: int
    fault: Callable[[Operation], Fault | None] | None = None
    posix: bool = False
    restarts: bool = True
    config: TopicConfig = CONFIG
    marks: list[Mark] = field(default_factory=list)
    written: dict[int, set[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.now = NOW
        self.files = CrashFiles(now_ms=lambda: self.now, posix=self.posix)
        self.files.mkdir(LOG_DIR)
        self.files.sync_all()
        self.failures = LogDirFailureChannel()
        self.epoch = 0
        self.flushed = 0
        self.cut = NOTHING
        self.branch: list[tuple[int, int, bytes]] = []
        self.begin = len(self.files.operations)
        self.log = self.open(self.files)
        self.files.fault = self.fault
        self.mark("open")

    def open(self, files: Files, *, clean: bool = False) -> UnifiedLog:
        """Open the log as the start of a broker does, with the checkpoints that are there."""
        self.scheduler = Scheduler(lambda: self.now, on_error=self._fail)
        return UnifiedLog.open(
            files,
            DIRECTORY,
            self.config,
            now_ms=lambda: self.now,
            scheduler=self.scheduler,
            failures=self.failures,
            log_start_offset=read_checkpoint(files, LOG_START_OFFSET_CHECKPOINT),
            recovery_point=read_checkpoint(files, RECOVERY_POINT_CHECKPOINT),
            had_clean_shutdown=clean,
            producer_id_expiration_ms=1 << 30,
            verify_transactions=False,
        )

    def _fail(self, name: str, error: Exception) -> None:
        raise error

    # steps ------------------------------------------------------------------------------------------------------------------------

    def run(self, steps: int) -> None:
        """Run this many random steps."""
        for _ in range(steps):
            self.step()

    def step(self) -> None:
        """Run one random step."""
        choices: list[tuple[int, Callable[[], object]]] = [
            (24, self.append),
            (12, self.append_idempotent),
            (12, self.append_transactional),
            (8, self.end_transaction),
            (10, self.append_as_follower),
            (8, self.flush),
            (8, self.run_tasks),
            (8, self.checkpoint),
            (4, self.roll),
            (4, self.truncate),
            (3, self.delete_records),
            (3, self.delete_old_segments),
            (1, self.truncate_fully),
            (2 if self.restarts else 0, self.restart),
            (2 if self.restarts else 0, self.kill),
        ]
        step = self.dice.choices([each for _, each in choices], [weight for weight, _ in choices])[0]
        self.now += self.dice.randrange(20)
        before = self.log.recovery_point
        step()
        moved = self.log.recovery_point > before
        # The start of the log moves the recovery point along without a flush, as in Kafka.
        if moved and step not in (self.delete_records, self.delete_old_segments):
            self.flushed = max(self.flushed, self.log.recovery_point)
        self.mark(step.__name__)

    def mark(self, step: str) -> None:
        """Note the state at the end of the step."""
        log = self.log
        self.flushed = min(self.flushed, log.log_end_offset)
        cut, self.cut = self.cut, NOTHING
        self.marks.append(
            Mark(len(self.files.operations), step, self.flushed, log.log_start_offset, log.log_end_offset, tuple(self.branch), cut)
        )

    def _builder(self, **fields: Any) -> bytes:
        builder = BatchBuilder(**fields)
        for _ in range(self.dice.randrange(1, 4)):
            value = self.dice.randbytes(self.dice.choice((5, 40, 120)))
            builder.append(self.now - self.dice.randrange(100), self.dice.choice((None, b"key")), value)
        return builder.build()

    def _write(self, data: bytes, origin: AppendOrigin = AppendOrigin.CLIENT) -> None:
        if self.dice.random() < 0.1:
            self.epoch += 1
        position = self.log.segments.active.size, self.log.segments.active.base_offset
        self.log.append_as_leader(data, self.epoch, origin=origin, transaction_version=0)
        self._note(position)

    def _note(self, before: tuple[int, int]) -> None:
        """Note the batches that the append wrote."""
        active = self.log.segments.active
        start = before[0] if active.base_offset == before[1] else 0
        for batch in memory_batches(active.log.read_at(start, active.size - start)):
            data = bytes(batch.data())
            self.branch.append((batch.base_offset, batch.last_offset, data))
            self.written.setdefault(batch.base_offset, set()).add(data)

    def append(self) -> None:
        self._write(self._builder(codec=self.dice.choice(("none", "none", "gzip", "lz4"))))

    def _sequenced(self, producer_id: int, *, transactional: bool) -> None:
        epoch, sequence = self._next_sequence(producer_id)
        fields = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        self._write(self._builder(transactional=transactional, **fields))

    def _next_sequence(self, producer_id: int) -> tuple[int, int]:
        """Return the producer's epoch and next sequence.

        A producer that the log has forgotten continues where it was. One of which the log has no batches continues in a new epoch.
        """
        entry = self.log.producers.producers.get(producer_id)
        if entry is not None:
            return (entry.producer_epoch, entry.last_sequence + 1) if entry.batches else (entry.producer_epoch + 1, 0)
        for _, _, data in reversed(self.branch):
            batch = Batch(data)
            if batch.producer_id == producer_id and not batch.is_control:
                return batch.producer_epoch, batch.last_sequence + 1
        return 0, 0

    def append_idempotent(self) -> None:
        self._sequenced(self.dice.choice((1, 2)), transactional=False)

    def append_transactional(self) -> None:
        self._sequenced(self.dice.choice((11, 12, 13)), transactional=True)

    def end_transaction(self) -> None:
        for producer_id in (11, 12, 13):
            entry = self.log.producers.producers.get(producer_id)
            if entry is not None and entry.current_txn_first_offset is not None:
                builder = BatchBuilder(producer_id=producer_id, producer_epoch=entry.producer_epoch, control=True, transactional=True)
                builder.append_end_txn_marker(self.now, self.dice.random() < 0.5, 3)
                self._write(builder.build(), AppendOrigin.COORDINATOR)
                return

    def append_as_follower(self) -> None:
        position = self.log.segments.active.size, self.log.segments.active.base_offset
        offset, data = self.log.log_end_offset, b""
        for _ in range(self.dice.randrange(1, 3)):
            batch = self._builder(base_offset=offset, partition_leader_epoch=self.epoch)
            offset = Batch(batch).next_offset
            data += batch
        self.log.append_as_follower(data, self.epoch)
        self._note(position)

    def flush(self) -> None:
        self.log.flush(force_flush_active_segment=self.dice.random() < 0.5)

    def run_tasks(self) -> None:
        self.now += self.dice.choice((0, 60))
        self.scheduler.run_due()

    def checkpoint(self) -> None:
        """Write what the log manager writes from time to time and after each truncation."""
        _write_checkpoints(self.files, self.log)

    def roll(self) -> None:
        self.log.roll()

    def _cut_branch(self, offset: int) -> None:
        self.cut = offset
        self.flushed = min(self.flushed, offset)
        self.branch = [entry for entry in self.branch if entry[1] < offset]

    def truncate(self) -> None:
        """Truncate to the beginning of one of the last batches, as a follower does after a divergence."""
        last = [base for base, _, _ in self.branch[-6:] if base >= self.log.log_start_offset]
        if last:
            offset = self.dice.choice(last)
            self.epoch += 1
            self._cut_branch(offset)
            self.log.truncate_to(offset)
            self.checkpoint()

    def truncate_fully(self) -> None:
        offset = self.log.log_end_offset + self.dice.randrange(5)
        self._cut_branch(self.log.log_start_offset)
        self.branch.clear()
        self.log.truncate_fully_and_start_at(offset)
        self.checkpoint()

    def delete_records(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        start, end = self.log.log_start_offset, self.log.log_end_offset
        self.log.maybe_increment_log_start_offset(start + (end - start) // self.dice.choice((2, 3, 8)))

    def delete_old_segments(self) -> None:
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.delete_old_segments()

    def restart(self) -> None:
        """Stop cleanly and start again."""
        self.flush()
        self.log.close()
        self.checkpoint()
        self.log = self.open(self.files, clean=True)

    def kill(self) -> None:
        """Let the process die and another one start. Data that was not flushed is still not flushed."""
        self.log.close_handlers()
        self.log = self.open(self.files)

    # what must be true ------------------------------------------------------------------------------------------------------------

    def check(self, disk: MemoryFiles, at: int, *, killed: bool = False) -> None:
        """Open what a crash after operation `at` left, and check it. The AssertionError says what is wrong with it."""
        i = next((i for i, mark in enumerate(self.marks) if mark.operations > at), len(self.marks))
        before = self.marks[i - 1] if i else Mark(0, "nothing", 0, 0, 0, ())
        during = self.marks[i] if i < len(self.marks) else before
        start = max(before.start, during.start)
        certain = before.end if killed else before.flushed
        certain = min(certain, during.cut if during is not before else NOTHING)
        where = f"seed {self.seed}, crash behind operation {at} in {during.step}"
        log = self._load(disk, where)
        assert log.log_start_offset <= max(start, before.end), where
        got = batches_of(log)
        for base, _, data in got:
            assert data in self.written.get(base, ()), f"{where}: at {base} stands what was never written"
        self._check_offsets(log, got, before.branch, start, certain, where)
        self._check_producers(log, got, where)
        self._go_on(disk, log, where)

    def _load(self, disk: MemoryFiles, where: str) -> UnifiedLog:
        try:
            return self.open(disk)
        except LoadError as error:
            raise AssertionError(f"{where}: the log can't be loaded: {error}") from error

    def check_offline(self, disk: MemoryFiles, *, killed: bool = False) -> None:
        """Open what is left when the last step failed. Everything that the earlier steps acknowledged must be there."""
        before = self.marks[-1]
        start, certain = max(before.start, self.log.log_start_offset), min(before.end if killed else before.flushed, self.cut)
        where = f"seed {self.seed}, offline"
        self.failures = LogDirFailureChannel()
        log = self._load(disk, where)
        got = batches_of(log)
        self._check_offsets(log, got, before.branch, start, certain, where)
        self._go_on(disk, log, where)

    def _check_offsets(
        self, log: UnifiedLog, got: list[tuple[int, int, bytes]], branch: Branch, start: int, certain: int, where: str
    ) -> None:
        following = None
        for base, last, _ in got:
            assert following in (None, base), f"{where}: offsets {following} to {base} are missing"
            following = last + 1
        assert following in (None, log.log_end_offset), f"{where}: the log ends at {log.log_end_offset}, its batches at {following}"
        there, wanted = ([entry for entry in batches if entry[0] >= start and entry[1] < certain] for batches in (got, branch))
        assert there == wanted, f"{where}: what was flushed below {certain} is not there"

    def _check_producers(self, log: UnifiedLog, got: list[tuple[int, int, bytes]], where: str) -> None:
        replay = ProducerState()
        replay.load_batches(Batch(data) for _, _, data in got)
        whole = (got[0][0] if got else log.log_end_offset) == 0
        for producer_id, expected in replay.producers.items():
            entry = log.producers.producers[producer_id]
            names = ["producer_epoch"]
            # The log may have kept only the end of a producer's transaction, or everything but its end.
            names += ["coordinator_epoch"] if expected.coordinator_epoch >= 0 or whole else []
            names += ["last_sequence", "last_data_offset"] if expected.batches or whole else []
            names += ["current_txn_first_offset"] if whole else []
            for name in names:
                assert getattr(entry, name) == getattr(expected, name), f"{where}: {name} of producer {producer_id}"
        if whole:
            assert set(log.producers.producers) == set(replay.producers), where

    def _go_on(self, disk: MemoryFiles, log: UnifiedLog, where: str) -> None:
        """Check that the log can be written, and that a clean stop leaves no problems."""
        log.update_high_watermark(log.log_end_offset)
        log.delete_old_segments()
        log.append_as_leader(BatchBuilder.build(_one_record()), self.epoch + 1)
        log.flush(force_flush_active_segment=True)
        self.scheduler.run_due(self.now + 100)
        end = log.log_end_offset
        log.close()
        _write_checkpoints(disk, log)
        findings = verify([DIRECTORY], "full", files=disk).findings
        problems = [found for found in findings if found.is_problem and found.code not in LEFT_BY_A_CRASH]
        assert not problems, f"{where}: {problems[0].code} {problems[0].file} {problems[0].detail}"
        again = self.open(disk, clean=True)
        assert again.log_end_offset == end, where
        again.close_handlers()


def _write_checkpoints(files: Files, log: UnifiedLog) -> None:
    start = log.log_start_offset
    starts = {NAME: start} if start > log.segments.base_offsets[0] else {}
    files.write_atomic(f"{LOG_DIR}/{RECOVERY_POINT_CHECKPOINT}", write_offset_checkpoint({NAME: log.recovery_point}))
    files.write_atomic(f"{LOG_DIR}/{LOG_START_OFFSET_CHECKPOINT}", write_offset_checkpoint(starts))


def _one_record() -> BatchBuilder:
    builder = BatchBuilder()
    builder.append(NOW, None, b"after the crash")
    return builder


def batches_of(log: UnifiedLog) -> list[tuple[int, int, bytes]]:
    """Return the batches from the log's start on."""
    found = []
    for segment in log.segments:
        for batch in memory_batches(segment.log.read_at(0, segment.size)):
            if batch.last_offset >= log.log_start_offset:
                found.append((batch.base_offset, batch.last_offset, bytes(batch.data())))
    return found


def read_checkpoint(files: Files, name: str) -> int:
    """Return the offset of the partition, or 0 if there is none."""
    path = f"{LOG_DIR}/{name}"
    return read_offset_checkpoint(files.read_all(path), file=path).get(NAME, 0) if files.exists(path) else 0


# Kafka's order of writing ---------------------------------------------------------------------------------------------------------

ROLL, REMOVE, CREATE = LocalLog.roll, LocalLog.remove_and_delete_segments, LocalLog.create_and_delete_segment


def roll_first(log: LocalLog, expected_next_offset: int = 0) -> LogSegment:
    """Roll as in Kafka: a later flush takes care of the former segment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LogSegment, "flush", lambda segment: None)
        patch.setattr(FileRecords, "flush", lambda records: None)
        return ROLL(log, expected_next_offset)


def remove_in_order(log: LocalLog, segments: Sequence[LogSegment], *, at_once: bool = False) -> None:
    """Truncate as in Kafka: segments are removed from front to back."""
    REMOVE(log, sorted(segments, key=lambda segment: segment.base_offset), at_once=at_once)


def create_first(log: LocalLog, new_offset: int, old: LogSegment) -> LogSegment:
    """Truncate as in Kafka: the new segment is created before the old one is removed."""
    if new_offset == old.base_offset:
        return CREATE(log, new_offset, old)
    new = log._open_segment(new_offset)
    log.segments.add(new)
    log.remove_and_delete_segments([old])
    return new


@contextmanager
def kafkas_order() -> Iterator[None]:
    """Use all three orders of Kafka."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LocalLog, "roll", roll_first)
        patch.setattr(LocalLog, "remove_and_delete_segments", remove_in_order)
        patch.setattr(LocalLog, "create_and_delete_segment", create_first)
        yield
