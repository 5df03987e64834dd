"""Loads of damaged partition directories on an overlay. The tests of the loader compare the result and the files with Kafka's.

A directory is loaded by the loader alone (as in `kops log forecast`) or opened as a live log. Both must end the same.
"""

from __future__ import annotations

import hashlib
import posixpath
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kops.config.topic import TopicConfig
from kops.files import File, Files, OsFiles, OverlayFiles
from kops.storage.failures.load_errors import LoadError
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from kops.storage.start.loaded_log import LoadedLog
from kops.storage.start.loader import load_partition
from kops.storage.unified_log import UnifiedLog

Listing = dict[str, list[Any]]
Load = Callable[..., LoadedLog | UnifiedLog]
_CHUNK = 1 << 20
_ZEROS = bytes(_CHUNK)


@dataclass
class Outcome:
    """The end of a load and of the close after it. `changed` maps the names of new and changed files to [size, sha256]."""

    error: LoadError | None = None
    log_start_offset: int | None = None
    log_end_offset: int | None = None
    segments: int | None = None
    producers: int | None = None
    changed: Listing = field(default_factory=dict)
    removed: list[str] = field(default_factory=list)

    def result(self) -> dict[str, Any]:
        """Return it in the shape of a trial's `result`, without messages."""
        if self.error is not None:
            return {"ok": False, "class": self.error.exception}
        return {
            "ok": True,
            "logStartOffset": self.log_start_offset,
            "logEndOffset": self.log_end_offset,
            "segments": self.segments,
            "producers": self.producers,
        }


def overlay() -> OverlayFiles:
    """Return files whose writes stay in memory."""
    return OverlayFiles(OsFiles(read_only=True))


def listing(files: Files, directory: str) -> Listing:
    """Return size and sha256 of every file in a directory."""
    found: Listing = {}
    for name in files.list(directory):
        path = posixpath.join(directory, name)
        if not files.stat(path).is_dir:
            with files.open(path) as file:
                found[name] = [file.size(), digest(file)]
    return found


def digest(file: File) -> str:
    """Return the sha256 of a whole file."""
    sha = hashlib.sha256()
    position = 0
    while data := file.read(position, _CHUNK):
        sha.update(data)
        position += len(data)
    return sha.hexdigest()


def apply_operations(files: Files, directory: str, operations: list[dict[str, Any]]) -> None:
    """Apply the damage that the corpus describes to a directory."""
    for operation in operations:
        path = posixpath.join(directory, operation["file"])
        kind = operation["op"]
        if kind == "delete":
            files.unlink(path)
        elif kind == "truncate":
            with files.open(path, "rw") as file:
                file.truncate(operation["newSize"])
        elif kind == "append":
            with files.open(path, "rw") as file:
                assert file.size() == operation["oldSize"]
                file.write(file.size(), bytes.fromhex(operation["data"]))
        elif kind in ("write", "flipBit"):
            old, new = bytes.fromhex(operation["old"]), bytes.fromhex(operation["new"])
            with files.open(path, "rw") as file:
                assert file.read(operation["position"], len(old)) == old
                file.write(operation["position"], new)
        else:
            raise AssertionError(operation)


def open_live(
    files: Files,
    directory: str,
    config: TopicConfig,
    *,
    log_start_offset: int = 0,
    recovery_point: int,
    clean_shutdown: bool,
    now_ms: int,
    producer_id_expiration_ms: int,
) -> UnifiedLog:
    """Open the directory as a broker does, and run the tasks that its scheduler runs at once."""
    scheduler = Scheduler(lambda: now_ms)
    log = UnifiedLog.open(
        files,
        directory,
        config,
        now_ms=lambda: now_ms,
        scheduler=scheduler,
        failures=LogDirFailureChannel(),
        log_start_offset=log_start_offset,
        recovery_point=recovery_point,
        had_clean_shutdown=clean_shutdown,
        producer_id_expiration_ms=producer_id_expiration_ms,
    )
    scheduler.run_due()
    return log


LOADS: tuple[Load, ...] = (load_partition, open_live)


def load_and_close(
    files: Files,
    directory: str,
    config: TopicConfig,
    *,
    load: Load = load_partition,
    clean_shutdown: bool,
    recovery_point: int,
    now_ms: int,
    log_start_offset: int = 0,
    producer_id_expiration_ms: int = 2**31 - 1,
) -> Outcome:
    """Load a partition, close it if that succeeded, and compare the directory with its former state."""
    before = listing(files, directory)
    outcome = Outcome()
    try:
        log = load(
            files,
            directory,
            config,
            log_start_offset=log_start_offset,
            recovery_point=recovery_point,
            clean_shutdown=clean_shutdown,
            now_ms=now_ms,
            producer_id_expiration_ms=producer_id_expiration_ms,
        )
    except LoadError as error:
        outcome.error = error
    else:
        _describe(log, outcome)
        log.close()
    after = listing(files, directory)
    outcome.changed = {name: value for name, value in after.items() if before.get(name) != value}
    outcome.removed = sorted(name for name in before if name not in after)
    return outcome


def _describe(log: LoadedLog | UnifiedLog, outcome: Outcome) -> None:
    outcome.log_start_offset = log.log_start_offset
    outcome.log_end_offset = log.log_end_offset
    outcome.segments = len(log.segments)
    outcome.producers = len(log.producers.producers)
