"""Appends, recovery and opening by the log of kops and by Kafka's UnifiedLog, in turn, on the same batches. Only the CPU seconds of the
work are measured.

    python -m tests.bench.log_engine leader|follower|recover|open|memory [plain|lz4] [SIZE] [ROUNDS]

SIZE is a number of bytes. With `follower` it is the number of batches per append, with `open` the number of partitions.

Kafka's log runs in one JVM with C2 until it gets no faster. The loop around it is made of method handles, so that no call comes from
Python. Both write the same batches to the same file system, a few thousand appends in turn. After each turn they begin their log again, so
that both get pages that were used before. This is a program, so that KOPS_PURE can be set. It prints `[[name, cpu_s, wall_s, note], …]` as
JSON.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from kops.config.topic import topic_config
from kops.files import OsFiles
from kops.records import BatchBuilder
from kops.records._hot import is_compiled
from kops.storage.formats.meta_properties import MetaProperties
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.manager.log_manager import LogManager
from kops.storage.manager.settings import LogManagerConfig, TopicConfigs
from kops.storage.scheduler import Scheduler
from kops.storage.start.log_dirs import LogDirStart
from kops.storage.unified_log import UnifiedLog
from tests.bench.data import CACHE, FIRST_TIMESTAMP, VARIANTS, segment, text

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle

RECORDS = 148
TURN = 2048
SETTINGS = {"file.delete.delay.ms": "0"}
APPENDS_BEFORE = 60_000
"""The number of Kafka's appends before the measurement. C2 has compiled their code by then."""
LOG = "org.apache.kafka.storage.internals.log"
NAME = "kops" if is_compiled() else "kops interpreted"
Times = list[tuple[float, float]]


def batches(codec: str) -> list[bytes]:
    """Return batches of 148 records of 100 B, 16 KiB without compression, as a producer sends them (leader epoch 0)."""
    made = []
    for variant in range(VARIANTS):
        chance = random.Random(variant)
        builder = BatchBuilder(codec=codec, base_offset=0, partition_leader_epoch=0)
        for number in range(RECORDS):
            builder.append(FIRST_TIMESTAMP + number // 16, None, text(chance, 100))
        made.append(builder.build())
    return made


class OurLog:
    """A log of kops in a new folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.scheduler = Scheduler(now_ms)
        self.log = open_ours(folder, scheduler=self.scheduler)

    def begin_anew(self) -> None:
        """Remove everything that was written."""
        self.log.truncate_fully_and_start_at(0)
        self.scheduler.run_due()

    def lead(self, data: list[bytes]) -> tuple[float, float]:
        """Run a turn as leader and return its (CPU, wall) seconds."""
        append = self.log.append_as_leader
        started = time.process_time(), time.perf_counter()
        for _ in range(TURN // len(data)):
            for batch in data:
                append(batch, 0)
        taken = time.process_time() - started[0], time.perf_counter() - started[1]
        self.begin_anew()
        return taken

    def follow(self, data: list[bytes], fetched: int = 1) -> tuple[float, float]:
        """Run a turn as follower with `fetched` batches per append and return its (CPU, wall) seconds. The time to set their offsets is not
        counted.
        """
        append = self.log.append_as_follower
        cpu = wall = 0.0
        for first in range(0, TURN * RECORDS, len(data) * RECORDS):
            given = [struct.pack(">q", first + number * RECORDS) + batch[8:] for number, batch in enumerate(data)]
            fetches = [b"".join(given[number : number + fetched]) for number in range(0, len(given), fetched)]
            started = time.process_time(), time.perf_counter()
            for fetch in fetches:
                append(fetch, 0)
            cpu += time.process_time() - started[0]
            wall += time.perf_counter() - started[1]
        self.begin_anew()
        return cpu, wall


def now_ms() -> int:
    """Return the time of the clock."""
    return int(time.time() * 1000)


def open_ours(folder: Path, *, clean: bool = True, scheduler: Scheduler | None = None) -> UnifiedLog:
    """Open a log of kops with the real clock."""
    return UnifiedLog.open(
        OsFiles(),
        str(folder),
        topic_config(SETTINGS),
        now_ms=now_ms,
        scheduler=Scheduler(now_ms) if scheduler is None else scheduler,
        failures=LogDirFailureChannel(),
        had_clean_shutdown=clean,
    )


class Jvm:
    """Kafka's classes in a JVM of their own, and its CPU clock."""

    def __init__(self) -> None:
        os.environ["_JAVA_OPTIONS"] = "-XX:TieredStopAtLevel=4 -Xmx1g"
        from tests.support.kafka.oracle import Oracle

        self.oracle: Oracle = Oracle()
        # The clock of another process's CPU time, as clock_getcpuclockid(3) returns it. Linux derives it from the process id.
        self._clock = (~self.oracle.process.pid << 3) | 2

    def timed(self, work: Callable[[], object]) -> tuple[float, float]:
        """Return the (CPU, wall) seconds of the work. The CPU is that of the whole JVM, including the compiler and garbage collection."""
        started = time.clock_gettime(self._clock), time.perf_counter()
        work()
        return time.clock_gettime(self._clock) - started[0], time.perf_counter() - started[1]

    def open(self, folder: Path, *, clean: bool = True) -> Any:
        """Open a UnifiedLog with the defaults of a topic."""
        oracle = self.oracle
        return oracle.java_class(f"{LOG}.UnifiedLog").create(
            oracle.jvm.java.io.File(str(folder)),
            oracle.java_class(f"{LOG}.LogConfig")(dict(SETTINGS)),
            0,
            0,
            oracle.shared("org.apache.kafka.server.util.KafkaScheduler", 1),
            oracle.shared("org.apache.kafka.storage.log.metrics.BrokerTopicStats"),
            oracle.java_class("org.apache.kafka.common.utils.Time").SYSTEM,
            300_000,
            oracle.java_class(f"{LOG}.ProducerStateManagerConfig")(2**31 - 1, False),
            600_000,
            oracle.java_class(f"{LOG}.LogDirFailureChannel")(4),
            clean,
            self.nothing(),
        )

    def nothing(self) -> Any:
        """Return an empty java.util.Optional."""
        return self.oracle.java_class("java.util.Optional").empty()


class KafkaLog:
    """Kafka's log in a new folder, with a loop of appends that runs in the JVM."""

    def __init__(self, jvm: Jvm, folder: Path, data: list[bytes], method: str, fetched: int = 1) -> None:
        from tests.support.kafka.manual_jvm import named

        self.jvm = jvm
        folder.mkdir(parents=True)
        self.log = jvm.open(folder)
        oracle = jvm.oracle
        java = oracle.jvm.java
        self._handles = java.lang.invoke.MethodHandles
        self._lookup = self._handles.publicLookup()
        self._integer, self._long, self._void = java.lang.Integer.TYPE, java.lang.Long.TYPE, java.lang.Void.TYPE
        self._log_class = named(oracle, f"{LOG}.UnifiedLog")
        self._buffer_class, self._long_class = named(oracle, "java.nio.ByteBuffer"), named(oracle, "java.lang.Long")
        self._records_class = named(oracle, "org.apache.kafka.common.record.internal.MemoryRecords")
        self._info_class = named(oracle, f"{LOG}.LogAppendInfo")
        steps = [self._append(data[number : number + fetched], method) for number in range(0, len(data), fetched)]
        body = steps[-1]
        for step in reversed(steps[:-1]):
            body = self._handles.foldArguments(body, step)
        body = self._handles.dropArguments(body, 0, java.util.List.of(self._integer))
        self._loop = self._handles.countedLoop(self._handles.identity(self._integer), None, body)
        self._times = self._objects(TURN // len(data))

    def turn(self) -> tuple[float, float]:
        """Run a turn and return its (CPU, wall) seconds."""
        taken = self.jvm.timed(lambda: self._loop.invokeWithArguments(self._times))
        self.log.truncateFullyAndStartAt(0, self.jvm.nothing())
        return taken

    def _append(self, batches: list[bytes], method: str) -> Any:
        """Return a handle without arguments that sets the base offsets of the batches in the buffer and appends them."""
        handles, wrap = self._handles, self.jvm.oracle.java_class("java.nio.ByteBuffer").wrap
        buffer = wrap(b"".join(batches))
        records = self.jvm.oracle.java_class("org.apache.kafka.common.record.internal.MemoryRecords").readableRecords(buffer)
        append = self._lookup.findVirtual(self._log_class, method, self._type(self._info_class, self._records_class, self._integer))
        append = handles.insertArguments(append.bindTo(self.log), 0, self._objects(records, 0)).asType(self._type(self._void))
        position = 0
        for number, batch in enumerate(batches):
            append = handles.foldArguments(append, handles.collectArguments(self._put(buffer, position), 0, self._offset(number, method)))
            position += len(batch)
        return append

    def _put(self, buffer: Any, position: int) -> Any:
        """Return a handle that writes a long at a position in the buffer."""
        put = self._lookup.findVirtual(self._buffer_class, "putLong", self._type(self._buffer_class, self._integer, self._long))
        return self._handles.insertArguments(put.bindTo(buffer), 0, self._objects(position)).asType(self._type(self._void, self._long))

    def _offset(self, number: int, method: str) -> Any:
        """Return a handle that returns the base offset of a batch: 0 as leader, otherwise the end of the log and the batches before it."""
        handles, long = self._handles, self.jvm.oracle.java_class("java.lang.Long")
        if method == "appendAsLeader":
            return handles.constant(self._long, long.valueOf("0"))
        end = self._lookup.findVirtual(self._log_class, "logEndOffset", self._type(self._long)).bindTo(self.log)
        add = self._lookup.findStatic(self._long_class, "sum", self._type(self._long, self._long, self._long))
        return handles.collectArguments(handles.insertArguments(add, 1, self._objects(long.valueOf(str(number * RECORDS)))), 0, end)

    def _type(self, result: Any, *arguments: Any) -> Any:
        java = self.jvm.oracle.jvm.java
        return java.lang.invoke.MethodType.methodType(result, java.util.List.of(*arguments))

    def _objects(self, *values: Any) -> Any:
        array = self.jvm.oracle.gateway.new_array(self.jvm.oracle.jvm.java.lang.Object, len(values))
        for index, value in enumerate(values):
            array[index] = value
        return array


def appends(question: str, kind: str, fetched: int, rounds: int, root: Path) -> list[tuple[str, float, float, str]]:
    """Return the median microseconds of an append by kops and by Kafka. A follower appends `fetched` batches at once."""
    data = batches("none" if kind == "plain" else kind)
    data *= -(-fetched // len(data))
    ours = OurLog(root / "ours" / "bench-0")

    def own_turn() -> tuple[float, float]:
        return ours.lead(data) if question == "leader" else ours.follow(data, fetched)

    jvm = Jvm()
    with jvm.oracle:
        kafka = KafkaLog(jvm, root / "kafka" / "bench-0", data, "appendAsLeader" if question == "leader" else "appendAsFollower", fetched)
        for _ in range(APPENDS_BEFORE // TURN):
            kafka.turn()
        own_turn()
        mine: Times = []
        theirs: Times = []
        for _ in range(rounds):
            mine.append(own_turn())
            theirs.append(kafka.turn())
        kafka.log.close()
    ours.log.close()
    return [per_append(NAME, mine), per_append("Kafka's UnifiedLog", theirs)]


def per_append(name: str, times: Times) -> tuple[str, float, float, str]:
    """Return (name, CPU and wall microseconds per append, spread of the turns)."""
    each = sorted(cpu / TURN * 1e6 for cpu, _ in times)
    quarter = len(each) // 4
    return name, median(each), median(wall / TURN * 1e6 for _, wall in times), f"{each[quarter]:.1f}-{each[-1 - quarter]:.1f}"


def recover(size: int, rounds: int, root: Path) -> list[tuple[str, float, float, str]]:
    """Open a segment after a kill. Every batch is read, and the indexes and producers are rebuilt."""
    source = segment("plain", size)
    jvm = Jvm()
    with jvm.oracle:
        mine: Times = []
        theirs: Times = []
        for number in range(rounds + 2):
            folder = _killed(source, root / f"kafka-{number}" / "bench-0")
            theirs.append(jvm.timed(lambda folder=folder: jvm.open(folder, clean=False).closeHandlers()))  # type: ignore[misc]
            folder = _killed(source, root / f"ours-{number}" / "bench-0")
            started = time.process_time(), time.perf_counter()
            open_ours(folder, clean=False).close_handlers()
            mine.append((time.process_time() - started[0], time.perf_counter() - started[1]))
    return [middle(NAME, mine[2:]), middle("Kafka's UnifiedLog", theirs[2:])]


def _killed(source: Path, folder: Path) -> Path:
    """Return a folder with the segment's log and no other files. Nothing writes to the log."""
    folder.mkdir(parents=True)
    os.link(source, folder / source.name)
    return folder


def middle(name: str, times: Times) -> tuple[str, float, float, str]:
    """Return the medians of some rounds in seconds, and the lowest and highest CPU."""
    each = sorted(cpu for cpu, _ in times)
    return name, median(each), median(wall for _, wall in times), f"{each[0]:.2f}-{each[-1]:.2f} s"


def open_many(count: int, rounds: int, root: Path) -> list[tuple[str, float, float, str]]:
    """Start a log manager on a directory of `count` partitions, after a clean stop and after a kill."""
    data = batches("none")[0]
    for number in range(count):
        log = open_ours(root / f"bench-{number}")
        for _ in range(4):
            log.append_as_leader(data, 0)
        log.close()
    clean: Times = []
    killed: Times = []
    for number in range(rounds + 1):
        manager = _manager(str(root))
        started = time.process_time(), time.perf_counter()
        manager.startup()
        taken = time.process_time() - started[0], time.perf_counter() - started[1]
        if number:
            clean.append(taken)
        elif len(manager.all_logs) != count:
            raise RuntimeError(f"{len(manager.all_logs)} of {count} logs")
        manager.shutdown(1)
    for _ in range(rounds):
        (root / ".kafka_cleanshutdown").unlink()
        manager = _manager(str(root))
        started = time.process_time(), time.perf_counter()
        manager.startup()
        killed.append((time.process_time() - started[0], time.perf_counter() - started[1]))
        manager.shutdown(1)
    return [middle(f"{NAME}, {count} partitions", clean), middle(f"{NAME}, killed", killed)]


def _manager(log_dir: str) -> LogManager:
    """Return a log manager for the directory that is not started."""
    return LogManager(
        OsFiles(),
        [LogDirStart(log_dir, meta=MetaProperties(1, "cluster", 1, "AaaaaaaaaaaaaaaaaaaaaA"))],
        now_ms=now_ms,
        scheduler=Scheduler(now_ms),
        new_id=lambda: "0" * 32,
        failures=LogDirFailureChannel(),
        topics=TopicConfigs(lambda _: {}),
        config=LogManagerConfig(),
    )


def memory(size: int, root: Path) -> list[tuple[str, float, float, str]]:
    """Return the anonymous memory of this process (MiB in place of seconds) after a quarter of the appends and after all."""
    data = batches("none")
    log = open_ours(root / "bench-0")
    held = []
    for number in range(4):
        for _ in range(size // 4 // (len(data) * len(data[0]))):
            for batch in data:
                log.append_as_leader(batch, 0)
        log.update_high_watermark(log.log_end_offset)
        held.append(anonymous_mib())
        if number == 0:
            first = log.size
    note = f"after {first >> 20} and {log.size >> 20} MiB in {len(log.segments)} segments"
    log.close()
    return [(NAME, held[0], held[-1], note)]


def anonymous_mib() -> float:
    """Return the memory of this process that belongs to no file."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) / 1024
    raise RuntimeError("no RssAnon")


def main() -> None:
    """Answer one question."""
    question, kind, size, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    root = CACHE / f"engine-{os.getpid()}"
    root.mkdir(parents=True)
    try:
        if question == "recover":
            found = recover(size, rounds, root)
        elif question == "open":
            found = open_many(size, rounds, root)
        elif question == "memory":
            found = memory(size, root)
        else:
            found = appends(question, kind, max(size, 1), rounds, root)
    finally:
        shutil.rmtree(root)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
