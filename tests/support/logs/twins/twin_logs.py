"""Two logs that must stay equal: Kafka's UnifiedLog in the oracle's JVM and that of kops, each on a directory of its own.

A `Twin` does one operation after the other on both, with one manual clock. After each it compares the results (or the error's code, class
and text), the logs' state, and every file's name, size and contents. The two sides, `RealLog` and `KopsLog`, have the same methods. They
return plain values, or a `Refused` where Kafka throws.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError

from kops.config.topic import TopicConfig
from kops.errors import ApiError, KopsError
from kops.files import OsFiles
from kops.records.compression import codec_name
from kops.records.validation.validate import AppendOrigin
from kops.storage.cleaning._hot_clean import OffsetMap
from kops.storage.cleaning.cleaner import Cleaner, CleanRange
from kops.storage.failures.load_errors import LoadError
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.log_offsets import Isolation
from kops.storage.producers.verification import NO_GUARD, VerificationGuard
from kops.storage.scheduler import Scheduler
from kops.storage.unified_log import UnifiedLog
from tests.support.kafka.manual_jvm import ManualClock, ManualScheduler, constant, proxy
from tests.support.kafka.oracle import Oracle

LOG = "org.apache.kafka.storage.internals.log"
NAME = "t-0"
TOPIC_ID = "b8tRS7h4TJ2Vt43Dp85v2A"
EXPIRATION_MS = 1_000_000
OFFSET_MAP_BYTES = 1 << 14
IO_BUFFER_BYTES = 4096
EXPIRATION_CHECK_MS = 600_000
MAX_TRANSACTION_TIMEOUT_MS = 900_000
MODIFIED = re.compile(r" lastModifiedTime=-?\d+,")
UNTOLD_TASKS = ("delete-producer-snapshot", "leader-epoch-cache-flush-t-0")
"""Tasks that Kafka also schedules if there is nothing to delete or to write. Their effects show in the files."""


class Refused(NamedTuple):
    """An error: Kafka's code and Java's class if they are known, the message, and the records that are wrong."""

    code: str | None
    java_class: str | None
    message: str
    record_errors: tuple[tuple[int, str | None], ...] = ()

    def same(self, other: object) -> bool:
        """Return whether both are the same, as far as both have values."""
        if not isinstance(other, Refused):
            return False
        code = self.code == other.code or None in (self.code, other.code)
        java_class = self.java_class == other.java_class or None in (self.java_class, other.java_class)
        return code and java_class and self.message == other.message and self.record_errors == other.record_errors


class TwinMismatch(AssertionError):
    """The twins are no longer the same."""


class RealLog:
    """Kafka's own log."""

    def __init__(self, oracle: Oracle, root: Path, now_ms: int) -> None:
        self.oracle = oracle
        self.root = root
        self.name = NAME
        self.clock = ManualClock(oracle, now_ms)
        self.tasks = ManualScheduler(oracle, self.clock)
        self.log: Any = None
        self.guards: list[Any] = []
        self._records = oracle.java_class("org.apache.kafka.common.record.internal.MemoryRecords").readableRecords
        self._wrap = oracle.java_class("java.nio.ByteBuffer").wrap
        self._optional = oracle.java_class("java.util.Optional")
        self._no_caching = oracle.java_class("org.apache.kafka.server.common.RequestLocal").noCaching()
        self._no_guard = oracle.java_class(f"{LOG}.VerificationGuard").SENTINEL
        self._by_client = oracle.java_class(f"{LOG}.LogStartOffsetIncrementReason").ClientRecordDeletion
        self._cleaner: Any = None

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return self.root / self.name

    def set_now(self, now_ms: int) -> None:
        self.tasks.collect()
        self.clock.now_ms = now_ms

    def open(self, settings: Mapping[str, str], log_start_offset: int, recovery_point: int, clean: bool) -> None:
        oracle = self.oracle
        stats = oracle.shared("org.apache.kafka.storage.log.metrics.BrokerTopicStats")
        uuid = oracle.java_class("org.apache.kafka.common.Uuid").fromString(TOPIC_ID)
        self.log = oracle.java_class(f"{LOG}.UnifiedLog").create(
            oracle.jvm.java.io.File(str(self.directory)),
            self._config(settings),
            log_start_offset,
            recovery_point,
            self.tasks.scheduler,
            stats,
            self.clock.time,
            MAX_TRANSACTION_TIMEOUT_MS,
            oracle.java_class(f"{LOG}.ProducerStateManagerConfig")(EXPIRATION_MS, True),
            EXPIRATION_CHECK_MS,
            oracle.java_class(f"{LOG}.LogDirFailureChannel")(4),
            clean,
            self._optional.of(uuid),
        )
        self.guards = []

    def _config(self, settings: Mapping[str, str]) -> Any:
        return self.oracle.java_class(f"{LOG}.LogConfig")(dict(settings))

    def configure(self, settings: Mapping[str, str]) -> None:
        self.log.updateConfig(self._config(settings))

    def append_leader(self, data: bytes, epoch: int, origin: str, guard: int | None, transaction_version: int) -> object:
        chosen = self._no_guard if guard is None else self.guards[guard]
        who = self.oracle.java_class(f"{LOG}.AppendOrigin").valueOf(origin)
        version = self.oracle.short(transaction_version)
        return append_info(self.log.appendAsLeader(self._memory(data), epoch, who, self._no_caching, chosen, version).toString())

    def append_follower(self, data: bytes, epoch: int) -> object:
        return append_info(self.log.appendAsFollower(self._memory(data), epoch).toString())

    def _memory(self, data: bytes) -> Any:
        return self._records(self._wrap(data))

    def start_verification(self, producer_id: int, sequence: int, epoch: int, bump: bool) -> bool:
        guard = self.log.maybeStartTransactionVerification(producer_id, sequence, self.oracle.short(epoch), bump)
        self.guards.append(guard)
        return bool(guard.equals(self._no_guard))

    def roll(self, expected: int | None) -> int:
        return int(self.log.roll(self._maybe_long(expected)).baseOffset())

    def _maybe_long(self, value: int | None) -> Any:
        if value is None:
            return self._optional.empty()
        return self.oracle.java_class("java.util.stream.LongStream").of(value).boxed().findFirst()

    def flush(self, force: bool) -> None:
        self.log.flush(force)

    def flush_up_to(self, offset: int) -> None:
        self.log.flushUptoOffsetExclusive(offset)

    def truncate_to(self, offset: int) -> bool:
        return bool(self.log.truncateTo(offset))

    def truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        self.log.truncateFullyAndStartAt(offset, self._maybe_long(log_start_offset))

    def delete_records(self, offset: int) -> bool:
        return bool(self.log.maybeIncrementLogStartOffset(offset, self._by_client))

    def delete_old_segments(self) -> int:
        return int(self.log.deleteOldSegments())

    def clean(self, first_dirty_offset: int, first_uncleanable_offset: int) -> int:
        """Compact the log. Return the offset up to which it is clean."""
        oracle = self.oracle
        if self._cleaner is None:
            make_throttler = oracle.java_class("org.apache.kafka.storage.internals.utils.Throttler")
            throttler = make_throttler(1e300, 300, "twin", "bytes", self.clock.time)
            offsets = oracle.java_class(f"{LOG}.SkimpyOffsetMap")(OFFSET_MAP_BYTES)
            check = proxy(oracle, "java.util.function.Consumer", constant(oracle, True))
            make = oracle.java_class(f"{LOG}.Cleaner")
            self._cleaner = make(0, offsets, IO_BUFFER_BYTES, 1 << 20, 0.9, throttler, self.clock.time, check)
        cleanable = oracle.java_class(f"{LOG}.LogToClean")(self.log, first_dirty_offset, first_uncleanable_offset, False)
        return int(self._cleaner.doClean(cleanable, self.clock.now_ms).getKey())

    def rename(self, name: str) -> None:
        self.log.renameDir(name, True)
        self.name = name

    def delete(self) -> None:
        self.log.delete()

    def update_high_watermark(self, offset: int) -> int:
        return int(self.log.updateHighWatermark(offset))

    def increment_high_watermark(self, offset: int) -> object:
        place = self.oracle.java_class(f"{LOG}.LogOffsetMetadata")(offset)
        return text_or_none(self.log.maybeIncrementHighWatermark(place))

    def read(self, offset: int, max_size: int, isolation: str, min_one: bool) -> object:
        level = self.oracle.java_class("org.apache.kafka.server.storage.log.FetchIsolation").valueOf(isolation)
        found = self.log.read(offset, max_size, level, min_one)
        aborted = get(found, "abortedTransactions")
        pairs = [(txn.producerId(), txn.firstOffset()) for txn in aborted.get()] if aborted.isPresent() else None
        records = get(found, "records").sizeInBytes()
        return str(get(found, "fetchOffsetMetadata").toString()), int(records), bool(get(found, "firstEntryIncomplete")), pairs

    def by_timestamp(self, target: int) -> str | None:
        return text_or_none(self.log.fetchOffsetByTimestamp(target, self._optional.empty()).timestampAndOffsetOpt())

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        found = self.log.endOffsetForEpoch(epoch)
        return (found.get().epoch(), found.get().offset()) if found.isPresent() else None

    def aborted(self, start: int, upper: int) -> str:
        return str(self.log.collectAbortedTransactions(start, upper).toString())

    def take_snapshot(self) -> None:
        self.log.takeProducerSnapshot()

    def run_tasks(self) -> None:
        self.tasks.run_due()

    def task_names(self) -> list[str]:
        return [name for name in self.tasks.names() if name not in UNTOLD_TASKS]

    def close(self) -> None:
        """Stop cleanly. The tasks end with the process."""
        self.log.close()
        self.tasks.clear()

    def kill(self, root: Path) -> None:
        """Continue with a copy of the directory as it is now. The open files stay with the old one."""
        shutil.copytree(self.directory, root / self.name)
        self.log.closeHandlers()
        self.tasks.clear()
        shutil.rmtree(self.root)
        self.root = root

    def state(self) -> dict[str, object]:
        log, manager = self.log, self.log.producerStateManager()
        latest, oldest = manager.latestSnapshotOffset(), manager.oldestSnapshotOffset()
        return {
            "log": self.plain(log.toString()),
            "recovery point": log.recoveryPoint(),
            "last flush": log.lastFlushTime(),
            "first unstable": text_or_none(log.firstUnstableOffset()),
            "segments": self.plain(log.logSegments().toString()),
            "producers": log.producerStateManager().activeProducers().toString(),
            "epochs": re.findall(r"\d+", log.leaderEpochCache().epochEntries().toString()),
            "map end": manager.mapEndOffset(),
            "snapshots": (text_of_long(latest), text_of_long(oldest)),
            "late transaction": log.hasLateTransaction(self.clock.now_ms),
        }

    def plain(self, text: str) -> str:
        """Return a text without the place of the directory and the times of its files."""
        return MODIFIED.sub("", text.replace(str(self.root), ""))

    def refusal(self, error: Exception) -> Refused:
        """Return an exception of a call of this side as `Refused`."""
        if not isinstance(error, Py4JJavaError):
            raise error
        thrown = error.java_exception
        record_errors: tuple[tuple[int, str | None], ...] = ()
        if thrown.getClass().getSimpleName() == "RecordValidationException":
            record_errors = tuple((int(wrong.batchIndex), wrong.message) for wrong in fields_of(thrown.recordErrors()))
            thrown = thrown.invalidException()
        code = str(self.oracle.java_class("org.apache.kafka.common.protocol.Errors").forException(thrown).name())
        message = self.plain(str(thrown.getMessage() or ""))
        return Refused(code, str(thrown.getClass().getSimpleName()), message, record_errors)


class KopsLog:
    """The log of kops, which is tested."""

    def __init__(self, root: Path, now_ms: int) -> None:
        self.root = root
        self.name = NAME
        self._now_ms = now_ms
        self.files = OsFiles()
        self.failures = LogDirFailureChannel()
        self.tasks = Scheduler(self.now_ms)
        self._log: UnifiedLog | None = None
        self.guards: list[VerificationGuard] = []

    @property
    def directory(self) -> Path:
        """The partition's directory."""
        return self.root / self.name

    @property
    def log(self) -> UnifiedLog:
        """The open log."""
        assert self._log is not None
        return self._log

    def now_ms(self) -> int:
        return self._now_ms

    def set_now(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def open(self, settings: Mapping[str, str], log_start_offset: int, recovery_point: int, clean: bool) -> None:
        self._log = UnifiedLog.open(
            self.files,
            str(self.directory),
            TopicConfig().with_overrides(settings),
            now_ms=self.now_ms,
            scheduler=self.tasks,
            failures=self.failures,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            had_clean_shutdown=clean,
            topic_id=TOPIC_ID,
            producer_id_expiration_ms=EXPIRATION_MS,
            producer_id_expiration_check_interval_ms=EXPIRATION_CHECK_MS,
            max_transaction_timeout_ms=MAX_TRANSACTION_TIMEOUT_MS,
        )
        self.guards = []

    def configure(self, settings: Mapping[str, str]) -> None:
        self.log.update_config(TopicConfig().with_overrides(settings))

    def append_leader(self, data: bytes, epoch: int, origin: str, guard: int | None, transaction_version: int) -> object:
        chosen = NO_GUARD if guard is None else self.guards[guard]
        info = self.log.append_as_leader(
            data, epoch, origin=AppendOrigin[origin], verification_guard=chosen, transaction_version=transaction_version
        )
        return self._append_info(info)

    def append_follower(self, data: bytes, epoch: int) -> object:
        return self._append_info(self.log.append_as_follower(data, epoch))

    @staticmethod
    def _append_info(info: Any) -> dict[str, str]:
        epoch = "Optional.empty" if info.last_leader_epoch is None else f"Optional[{info.last_leader_epoch}]"
        values = {
            "firstOffset": info.first_offset,
            "lastOffset": info.last_offset,
            "lastLeaderEpoch": epoch,
            "maxTimestamp": info.max_timestamp,
            "logAppendTime": info.log_append_time_ms,
            "logStartOffset": info.log_start_offset,
            "sourceCompression": codec_name(info.source_codec),
            "validBytes": info.valid_bytes,
            "lastOffsetOfFirstBatch": info.last_offset_of_first_batch,
        }
        return {name: str(value) for name, value in values.items()}

    def start_verification(self, producer_id: int, sequence: int, epoch: int, bump: bool) -> bool:
        self.guards.append(self.log.maybe_start_transaction_verification(producer_id, sequence, epoch, supports_epoch_bump=bump))
        return self.guards[-1] is NO_GUARD

    def roll(self, expected: int | None) -> int:
        return self.log.roll(expected).base_offset

    def flush(self, force: bool) -> None:
        self.log.flush(force_flush_active_segment=force)

    def flush_up_to(self, offset: int) -> None:
        self.log.flush_up_to(offset)

    def truncate_to(self, offset: int) -> bool:
        return self.log.truncate_to(offset)

    def truncate_fully(self, offset: int, log_start_offset: int | None) -> None:
        self.log.truncate_fully_and_start_at(offset, log_start_offset)

    def delete_records(self, offset: int) -> bool:
        return self.log.maybe_increment_log_start_offset(offset, "client delete records request")

    def delete_old_segments(self) -> int:
        return self.log.delete_old_segments()

    def clean(self, first_dirty_offset: int, first_uncleanable_offset: int) -> int:
        """Compact the log. Return the offset up to which it is clean."""
        cleaner = Cleaner(OffsetMap(OFFSET_MAP_BYTES), now_ms=self.now_ms, io_buffer_bytes=2 * IO_BUFFER_BYTES)
        return cleaner.clean(self.log, CleanRange(first_dirty_offset, first_uncleanable_offset)).end_offset

    def rename(self, name: str) -> None:
        self.log.rename_dir(name)
        self.name = name

    def delete(self) -> None:
        self.log.delete()

    def update_high_watermark(self, offset: int) -> int:
        return self.log.update_high_watermark(offset)

    def increment_high_watermark(self, offset: int) -> object:
        from kops.storage.log_offsets import LogOffsetMetadata

        former = self.log.maybe_increment_high_watermark(LogOffsetMetadata(offset))
        return None if former is None else place_text(former)

    def read(self, offset: int, max_size: int, isolation: str, min_one: bool) -> object:
        found = self.log.read(offset, max_size, Isolation[isolation], min_one_batch=min_one)
        aborted = found.aborted_transactions
        pairs = None if aborted is None else [(txn.producer_id, txn.first_offset) for txn in aborted]
        return place_text(found.offset_metadata), found.size, found.first_entry_incomplete, pairs

    def by_timestamp(self, target: int) -> str | None:
        found = self.log.fetch_offset_by_timestamp(target)
        if found is None:
            return None
        epoch = "Optional.empty" if found.leader_epoch is None else f"Optional[{found.leader_epoch}]"
        return f"TimestampAndOffset(timestamp={found.timestamp}, offset={found.offset}, leaderEpoch={epoch})"

    def end_of_epoch(self, epoch: int) -> tuple[int, int] | None:
        return self.log.end_offset_for_epoch(epoch)

    def aborted(self, start: int, upper: int) -> str:
        found = self.log.collect_aborted_transactions(start, upper)
        texts = [
            f"AbortedTxn(version={txn.version}, producerId={txn.producer_id}, firstOffset={txn.first_offset}, "
            f"lastOffset={txn.last_offset}, lastStableOffset={txn.last_stable_offset})"
            for txn in found
        ]
        return f"[{', '.join(texts)}]"

    def take_snapshot(self) -> None:
        self.log.take_producer_snapshot()

    def run_tasks(self) -> None:
        self.tasks.run_due()

    def task_names(self) -> list[str]:
        return [task.name for task in self.tasks.pending if task.period_ms is None and task.name not in UNTOLD_TASKS]

    def close(self) -> None:
        """Stop cleanly. The tasks end with the process."""
        self.log.close()
        self.tasks = Scheduler(self.now_ms)

    def kill(self, root: Path) -> None:
        """Continue with a copy of the directory as it is now. The open files stay with the old one."""
        shutil.copytree(self.directory, root / self.name)
        self.log.close_handlers()
        self.tasks = Scheduler(self.now_ms)
        shutil.rmtree(self.root)
        self.root = root

    def state(self) -> dict[str, object]:
        log = self.log
        return {
            "log": self.plain(str(log)),
            "recovery point": log.recovery_point,
            "last flush": log.last_flush_ms,
            "first unstable": None if log.first_unstable_offset is None else str(log.first_unstable_offset),
            "segments": self.plain(f"[{', '.join(str(segment) for segment in log.segments)}]"),
            "producers": producers_text(log),
            "epochs": [str(number) for entry in log.epochs.entries for number in (entry.epoch, entry.start_offset)],
            "map end": log.producers.map_end_offset,
            "snapshots": (log.producers.latest_snapshot_offset, log.producers.oldest_snapshot_offset),
            "late transaction": log.has_late_transaction(),
        }

    def plain(self, text: str) -> str:
        """Return a text without the place of the directory and the times of its files."""
        return MODIFIED.sub("", text.replace(str(self.root), ""))

    def refusal(self, error: Exception) -> Refused:
        """Return an exception of a call of this side as `Refused`."""
        if isinstance(error, ApiError):
            return Refused(error.name, None, self.plain(error.message), error.record_errors)
        if isinstance(error, LoadError):
            return Refused(None, error.exception.rpartition(".")[2], self.plain(error.reason))
        if isinstance(error, KopsError):
            return Refused(None, type(error).__name__.removesuffix("Error") + "Exception", self.plain(str(error)))
        raise error


def append_info(text: str) -> dict[str, str]:
    """Return a LogAppendInfo's text as values, without the statistics."""
    found = dict(re.findall(r"(\w+)=([^,()]+)", text))
    names = ("firstOffset", "lastOffset", "lastLeaderEpoch", "maxTimestamp", "logAppendTime", "logStartOffset", "sourceCompression")
    return {name: found[name] for name in (*names, "validBytes", "lastOffsetOfFirstBatch")}


def producers_text(log: UnifiedLog) -> str:
    """Return the producers as Java writes its map of them."""
    texts = []
    for entry in log.producers.ordered():
        first = "OptionalLong.empty" if entry.current_txn_first_offset is None else f"OptionalLong[{entry.current_txn_first_offset}]"
        batches = ", ".join(
            f"BatchMetadata(firstSeq={batch.first_sequence}, lastSeq={batch.last_sequence}, firstOffset={batch.first_offset}, "
            f"lastOffset={batch.last_offset}, timestamp={batch.timestamp})"
            for batch in entry.batches
        )
        texts.append(
            f"{entry.producer_id}=ProducerStateEntry(producerId={entry.producer_id}, producerEpoch={entry.producer_epoch}, "
            f"currentTxnFirstOffset={first}, coordinatorEpoch={entry.coordinator_epoch}, lastTimestamp={entry.last_timestamp}, "
            f"batchMetadata=[{batches}])"
        )
    return f"{{{', '.join(texts)}}}"


def place_text(place: Any) -> str:
    """Return a LogOffsetMetadata as Kafka writes it."""
    return f"(offset={place.message_offset}, segment=[{place.segment_base_offset}:{place.relative_position}])"


def text_or_none(optional: Any) -> str | None:
    """Return the value of a java.util.Optional as text."""
    found = str(optional.toString())
    return None if found == "Optional.empty" else found.removeprefix("Optional[").removesuffix("]")


def text_of_long(optional: Any) -> int | None:
    """Return the value of a java.util.OptionalLong."""
    return int(optional.getAsLong()) if optional.isPresent() else None


def get(thing: Any, name: str) -> Any:
    """Return a public field of a Java object."""
    from py4j.java_gateway import get_field

    return get_field(thing, name)


def fields_of(record_errors: Any) -> list[Any]:
    """Return RecordError objects with their two fields as Python attributes."""

    class Wrong(NamedTuple):
        batchIndex: int  # noqa: N815
        message: str | None

    return [Wrong(int(get(one, "batchIndex")), get(one, "message")) for one in record_errors]


class Twin:
    """Both sides, with the same operations and comparisons. `history` lists what was done."""

    def __init__(self, oracle: Oracle, directory: Path, now_ms: int) -> None:
        self.directory = directory
        self.now_ms = now_ms
        self._roots = 0
        self.real = RealLog(oracle, self._new_root("real"), now_ms)
        self.kops = KopsLog(self._new_root("kops"), now_ms)
        self.history: list[str] = []

    def _new_root(self, side: str) -> Path:
        self._roots += 1
        root = self.directory / f"{side}-{self._roots}"
        root.mkdir()
        return root

    def advance(self, milliseconds: int) -> None:
        """Move the clock forward."""
        self.now_ms += milliseconds
        self.real.set_now(self.now_ms)
        self.kops.set_now(self.now_ms)
        self.history.append(f"advance({milliseconds})")

    def kill(self) -> None:
        """Let both processes die. The directories stay as they are."""
        self.history.append("kill()")
        self.real.kill(self._new_root("real"))
        self.kops.kill(self._new_root("kops"))
        self.compare_files()

    def do(self, name: str, *arguments: Any, open_afterwards: bool = True) -> object:
        """Call a method of both sides and compare the results. Return the result, or `Refused`."""
        shown = ", ".join(f"<{len(value)} bytes>" if isinstance(value, bytes) else repr(value) for value in arguments)
        self.history.append(f"{name}({shown})")
        theirs, ours = self._call(self.real, name, arguments), self._call(self.kops, name, arguments)
        same = theirs.same(ours) if isinstance(theirs, Refused) else theirs == ours
        if not same:
            raise TwinMismatch(self.report(f"Kafka: {theirs}\nkops:  {ours}"))
        self.history[-1] += f" -> {theirs}"
        if open_afterwards:
            self.compare_state()
        self.compare_files()
        return theirs

    @staticmethod
    def _call(side: RealLog | KopsLog, name: str, arguments: tuple[Any, ...]) -> object:
        try:
            return getattr(side, name)(*arguments)
        except (Py4JJavaError, KopsError) as error:
            return side.refusal(error)

    def compare_state(self) -> None:
        """Compare the logs' offsets, producers and tasks."""
        theirs, ours = self.real.state(), self.kops.state()
        theirs["tasks"], ours["tasks"] = self.real.task_names(), self.kops.task_names()
        wrong = [f"{name}:\n Kafka {value}\n kops  {ours[name]}" for name, value in theirs.items() if value != ours[name]]
        if wrong:
            raise TwinMismatch(self.report("\n".join(wrong)))

    def compare_files(self) -> None:
        """Compare the names, sizes and contents of the files."""
        theirs, ours = contents(self.real.directory), contents(self.kops.directory)
        if theirs == ours:
            return
        names = sorted(theirs.keys() | ours.keys())
        wrong = [f"{name}: {_file(theirs.get(name))}, kops {_file(ours.get(name))}" for name in names if theirs.get(name) != ours.get(name)]
        raise TwinMismatch(self.report("\n".join(wrong)))

    def report(self, text: str) -> str:
        """Return what differs, after how it began and the last steps."""
        return "\n".join([*self.history[:1], f"step {len(self.history)}", *self.history[1:][-25:], text])


def contents(directory: Path) -> dict[str, bytes]:
    """Return the bytes of every file, or nothing if the directory is gone."""
    if not directory.exists():
        return {}
    return {path.name: path.read_bytes() for path in directory.iterdir()}


def _file(data: bytes | None) -> str:
    if data is None:
        return "missing"
    shown = data.rstrip(b"\0")
    return f"{len(data)} bytes, {len(shown)} up to the last that is not 0, {shown[-24:].hex()}"
