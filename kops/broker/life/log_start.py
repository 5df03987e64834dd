"""Loads the logs of a broker at its start, in side threads while the loop continues, and sets stray replicas aside.

Source: Kafka's LogManager (startup, loadLogs: `num.recovery.threads.per.data.dir` threads a directory) and LogManager.isStrayReplica.
"""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from kops.storage.formats.kafka_uuid import uuid_bytes

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from kops.broker.network.events.loop import Loop
    from kops.metadata.image.parts.topics import TopicsImage
    from kops.storage.manager.log_manager import LogManager
    from kops.storage.start.log_dirs import BrokerStart, Job, Runner, StrayRule

log = logging.getLogger(__name__)

PROGRESS_INTERVAL_MS: Final = 1000


def threads_runner(threads_per_dir: int) -> Runner:
    """Return a `Runner` with this number of threads for each directory. If a job fails, the jobs that have not started are cancelled, and
    the error is raised."""

    def run(jobs: list[list[Job]]) -> None:
        queues = [queue for queue in jobs if queue]
        pools = [ThreadPoolExecutor(threads_per_dir, thread_name_prefix="kops-log-recovery") for _ in queues]
        try:
            futures = [pool.submit(job) for pool, queue in zip(pools, queues, strict=True) for job in queue]
            for future in futures:
                future.result()
        finally:
            for pool in pools:
                pool.shutdown(cancel_futures=True)

    return run


def stray_rule(topics: TopicsImage, node_id: int) -> StrayRule:
    """Return a function that says why, according to the metadata, a replica does not belong to this broker; it returns None if it does."""

    def is_stray(topic_id: str | None, topic: str, partition: int) -> str | None:
        if topic_id is None:
            return "it has no topic id"
        found = topics.partition(uuid_bytes(topic_id), partition)
        if found is None:
            return f"the topicId {topic_id} does not exist in the metadata image"
        if node_id not in found.replicas:
            return f"the current replica assignment {list(found.replicas)} does not contain the local brokerId {node_id}"
        return None

    return is_stray


class LogStart:
    """Loads the logs once. Calls `progress()` on the loop about once a second meanwhile."""

    def __init__(self, loop: Loop, logs: LogManager, progress: Callable[[], object]) -> None:
        self._loop = loop
        self._logs = logs
        self._progress = progress
        self._timer = loop.call_later(PROGRESS_INTERVAL_MS, self._tell_progress)

    def run(self, is_stray: StrayRule, threads_per_dir: int, done: Callable[[Future[BrokerStart]], object]) -> None:
        """Load the logs. `done` gets the result on the loop; see `LogManager.startup` for what it may raise."""

        def finished(future: Future[BrokerStart]) -> None:
            self._timer.cancel()
            if future.exception() is None:
                _tell(future.result())
            done(future)

        runner = threads_runner(threads_per_dir)
        self._loop.in_thread(lambda: self._logs.startup(is_stray=is_stray, run=runner), finished)

    def _tell_progress(self) -> None:
        for start in self._logs.log_dirs:
            if start.remaining_logs:
                log.info(
                    "Loading logs from %s: %d logs and %d segments to recover", start.path, start.remaining_logs, start.remaining_segments
                )
        self._progress()
        self._timer = self._loop.call_later(PROGRESS_INTERVAL_MS, self._tell_progress)


def _tell(broker: BrokerStart) -> None:
    for warning in broker.warnings:
        log.warning("%s", warning)
    for start in broker.log_dirs:
        for warning in start.warnings:
            log.warning("%s", warning)
        if start.outcome != "started":
            log.error("Log directory %s is offline: %s", start.path, start.reason)
            continue
        for partition in start.partitions:
            if partition.outcome == "stray":
                log.info("Found stray log dir %s: %s", partition.path, partition.reason)
        log.info("Loaded %d logs of %s", len(start.partitions), start.path)
