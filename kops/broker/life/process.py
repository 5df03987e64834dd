"""Runs a node as a process, with its loop, signals, log lines, status file and exit code.

Source: Kafka's Kafka.main and config/log4j2.yaml (the shape of a line). The first SIGTERM or SIGINT starts a controlled shutdown. With the
second one it no longer waits for other nodes. The third one ends the process at once. In place of Kafka's JMX, SIGUSR1 writes the metrics
(`kops.broker.life.metrics`) to the log, as one line of JSON. Exit codes: 0 after a requested shutdown, 1 if the node could not start or
continue, 2 for invalid settings.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from kops.broker.life.node import Node
from kops.broker.network.events.loop import Loop
from kops.config import BrokerConfig
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.broker.controller_link.status import NodeStatus

log = logging.getLogger(__name__)

DONE: Final = 0
FAILED: Final = 1
USAGE: Final = 2
_YOUNG_OBJECTS: Final = 20_000
_PATIENCE: Final = 2  # The signals that end a node gracefully.
_LEVELS: Final = {"WARNING": "WARN", "CRITICAL": "FATAL"}


class KafkaFormatter(logging.Formatter):
    """`[2026-01-31 12:00:00,123] INFO text (kops.broker.life.node)`."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, with the traceback below it if there is one."""
        moment = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(record.created))
        level = _LEVELS.get(record.levelname, record.levelname)
        line = f"[{moment},{int(record.msecs):03}] {level} {record.getMessage()} ({record.name})"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def log_to_stderr() -> None:
    """Log to stderr, from level INFO on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KafkaFormatter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)


class StatusFile:
    """The status of a node as a JSON file, which is complete at every moment."""

    def __init__(self, path: str) -> None:
        self._path = path

    def write(self, document: Mapping[str, Any]) -> None:
        """Write the status. A failure is only logged."""
        beside = f"{self._path}.new"
        try:
            with open(beside, "w", encoding="utf-8") as file:
                json.dump(document, file)
            os.replace(beside, self._path)
        except OSError as error:
            log.warning("The status can't be written: %s", error)


def keep_collector_out() -> None:
    """Make the garbage collector run rarely, because it stops the whole node: a full collection takes 20 ms or more.

    Finished requests and waiting fetches are freed without it. So it runs only after `_YOUNG_OBJECTS` more objects are alive than at its
    last run, and it ignores everything that exists when the node is ready (`gc.freeze`: code, metadata, logs).
    """
    gc.set_threshold(_YOUNG_OBJECTS)


class NodeProcess:
    """One node with its loop, signals and status file."""

    def __init__(self, config: BrokerConfig, status_path: str | None) -> None:
        self._status = None if status_path is None else StatusFile(status_path)
        self._loop = Loop()
        self._node = Node(self._loop, config, on_state=self._tell)
        self._node.on_ready = gc.freeze
        self._node.on_failed = lambda reason: self._end(FAILED)
        self._exit_code = DONE
        self._signal_count = 0

    def run(self) -> int:
        """Run until the node has ended. Returns the exit code."""
        keep_collector_out()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        signal.signal(signal.SIGUSR1, lambda *_: self._loop.call_from_thread(self._log_metrics))
        try:
            self._node.start()
            self._loop.run()
        except KopsError as error:
            # A node that could not start has already written this to its status. A node whose metadata log fails can't continue.
            log.critical("%s", error)
            self._abandon(str(error))
        except BaseException as error:
            log.critical("The node ends on an unexpected error", exc_info=True)
            self._abandon(f"{type(error).__name__}: {error}")
            raise
        finally:
            self._loop.close()
        return self._exit_code

    def _on_signal(self, number: int, frame: object) -> None:
        self._signal_count += 1
        if self._signal_count > _PATIENCE:
            os._exit(128 + number)
        self._loop.call_from_thread((lambda: self._shut_down(number)) if self._signal_count == 1 else self._node.hurry)

    def _log_metrics(self) -> None:
        log.info("Metrics: %s", json.dumps(self._node.metrics()))

    def _shut_down(self, number: int) -> None:
        log.info("Terminating process due to signal %s", signal.Signals(number).name)
        self._node.shut_down(lambda: self._end(DONE))

    def _end(self, exit_code: int) -> None:
        self._exit_code = max(self._exit_code, exit_code)
        self._loop.stop()

    def _abandon(self, reason: str) -> None:
        self._exit_code = FAILED
        self._node.kill()
        status = self._node.status()
        if self._status is not None:
            self._status.write(status.document(os.getpid()) | {"error": status.error or reason})

    def _tell(self, status: NodeStatus) -> None:
        if self._status is not None:
            self._status.write(status.document(os.getpid()))


def run_node(properties: Mapping[str, str], *, status_path: str | None = None) -> int:
    """Run a node with these settings until it ends. Returns the exit code. Must run in the main thread of a process that does nothing
    else."""
    log_to_stderr()
    try:
        config = BrokerConfig.from_properties(properties)
    except UsageError as error:
        log.critical("%s", error)
        if status_path is not None:
            StatusFile(status_path).write({"state": "NOT_RUNNING", "pid": os.getpid(), "error": str(error)})
        return USAGE
    return NodeProcess(config, status_path).run()
