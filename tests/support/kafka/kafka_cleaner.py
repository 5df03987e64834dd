"""Kafka's own Cleaner for a partition's folder, in the oracle's JVM."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.support.logs.twins.cleaning import SETTINGS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.support.kafka.oracle import Oracle

LOG = "org.apache.kafka.storage.internals.log"


class KafkaCleaner:
    """A Cleaner with its offset map. `memory` and `buffer` are in bytes, `settings` are those of the topic."""

    def __init__(self, oracle: Oracle, memory: int = 1 << 20, *, buffer: int = 4096, settings: Mapping[str, str] = SETTINGS) -> None:
        self.oracle = oracle
        self.settings = dict(settings)
        jvm = oracle.jvm
        self.time = oracle.java_class("org.apache.kafka.common.utils.Time").SYSTEM
        object_class = jvm.java.lang.Object().getClass()
        void = oracle.java_class("java.lang.Void").TYPE
        signature = oracle.java_class("java.lang.invoke.MethodType").methodType(void, object_class)
        handle = oracle.java_class("java.lang.invoke.MethodHandles").empty(signature)
        consumer = oracle.java_class("java.lang.Class").forName("java.util.function.Consumer")
        ignore = oracle.java_class("java.lang.invoke.MethodHandleProxies").asInterfaceInstance(consumer, handle)
        throttler = oracle.java_class("org.apache.kafka.storage.internals.utils.Throttler")(1e300, 300, "test", "bytes", self.time)
        offsets = oracle.java_class(f"{LOG}.SkimpyOffsetMap")(memory)
        self.cleaner = oracle.java_class(f"{LOG}.Cleaner")(0, offsets, buffer, 1 << 20, 0.9, throttler, self.time, ignore)

    def open(self, directory: Path) -> Any:
        """Open a log. Files that it deletes disappear a minute later, when no test looks at them any more."""
        oracle = self.oracle
        return oracle.java_class(f"{LOG}.UnifiedLog").create(
            oracle.jvm.java.io.File(str(directory)),
            oracle.java_class(f"{LOG}.LogConfig")(self.settings),
            0,
            0,
            oracle.shared("org.apache.kafka.server.util.KafkaScheduler", 1),
            oracle.shared("org.apache.kafka.storage.log.metrics.BrokerTopicStats"),
            self.time,
            300_000,
            oracle.java_class(f"{LOG}.ProducerStateManagerConfig")(2**31 - 1, False),
            600_000,
            oracle.java_class(f"{LOG}.LogDirFailureChannel")(4),
            True,
            oracle.java_class("java.util.Optional").empty(),
        )

    def clean(self, directory: Path, first_dirty_offset: int, end_offset: int, now_ms: int) -> tuple[int, list[int]]:
        """Clean a log and return the end offset and the cleaner's counts."""
        log = self.open(directory)
        try:
            cleanable = self.oracle.java_class(f"{LOG}.LogToClean")(log, first_dirty_offset, end_offset, False)
            done = self.cleaner.doClean(cleanable, now_ms)
            stats = done.getValue()
            counted = [
                stats.mapMessagesRead(),
                stats.messagesRead(),
                stats.messagesWritten(),
                stats.invalidMessagesRead(),
                stats.bytesRead(),
                stats.bytesWritten(),
            ]
            return done.getKey(), counted
        finally:
            log.close()

    def timed(self, directory: Path, end_offset: int, now_ms: int) -> tuple[float, float]:
        """Return the (CPU, wall) seconds of one round from the log's beginning.

        The CPU time is that of the whole JVM with its garbage collection.
        """
        log = self.open(directory)
        system = self.oracle.java_class("java.lang.management.ManagementFactory").getOperatingSystemMXBean()
        bean = self.oracle.java_class("java.lang.Class").forName("com.sun.management.OperatingSystemMXBean")
        cpu_time = bean.getMethod("getProcessCpuTime", self.oracle.gateway.new_array(self.oracle.jvm.java.lang.Class, 0))
        nothing = self.oracle.gateway.new_array(self.oracle.jvm.java.lang.Object, 0)
        try:
            cleanable = self.oracle.java_class(f"{LOG}.LogToClean")(log, 0, end_offset, False)
            started = cpu_time.invoke(system, nothing), time.perf_counter()
            self.cleaner.doClean(cleanable, now_ms)
            return (cpu_time.invoke(system, nothing) - started[0]) / 1e9, time.perf_counter() - started[1]
        finally:
            log.close()
