"""Writing the checkpoints of the live log directories (Kafka OffsetCheckpointFile, CheckpointFileWithFailureHandler).

The partitions are in the same order as in the files of a 4.3 broker. LogManager builds a `scala.collection.mutable.HashMap`, which is
iterated slot by slot, and by hash within a slot.
"""

from __future__ import annotations

import posixpath
from typing import TYPE_CHECKING

from kops.config.values.java import to_int
from kops.config.values.java_hash import string_hash
from kops.storage.background.replaced_file import ReplacedFile
from kops.storage.formats.checkpoints import write_offset_checkpoint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.files import Files
    from kops.storage.formats.checkpoints import TopicPartition
    from kops.storage.log_dir_failure import LogDirFailureChannel
    from kops.storage.scheduler import Scheduler

_LOAD_FACTOR = 0.75
_DEFAULT_TABLE_SIZE = 16


class OffsetCheckpoints:
    """Writes the checkpoints of directories that are online."""

    def __init__(self, files: Files, failures: LogDirFailureChannel) -> None:
        self._files = files
        self._failures = failures
        self._replaced: dict[str, ReplacedFile] = {}
        # The keys of the last write of a file, as they came and as they were written. They change much less often than the offsets.
        self._orders: dict[tuple[str, bool], tuple[list[TopicPartition], list[TopicPartition]]] = {}

    def write(self, log_dir: str, name: str, offsets: Mapping[TopicPartition, int], *, size_is_known: bool = True) -> None:
        """Replace the checkpoint `name` of `log_dir`. An error is reported as a directory failure.

        `size_is_known` is whether Kafka knows the number of entries before it collects them, which changes their order.
        """
        write = self._begin(log_dir, name, offsets, size_is_known=size_is_known)
        if write is not None:
            self._end(log_dir, name, write)

    def write_aside(
        self, scheduler: Scheduler, log_dir: str, name: str, offsets: Mapping[TopicPartition, int], *, size_is_known: bool = True
    ) -> None:
        """Write these offsets as `write` does, but in a side thread of `scheduler`. This never overwrites a later `write`."""
        write = self._begin(log_dir, name, offsets, size_is_known=size_is_known)
        if write is None:
            return

        def write_online() -> None:
            if not self._failures.has_offline(log_dir):
                write()

        scheduler.aside(name, write_online, lambda future: self._end(log_dir, name, future.result))

    def _begin(self, log_dir: str, name: str, offsets: Mapping[TopicPartition, int], *, size_is_known: bool) -> Callable[[], None] | None:
        if self._failures.has_offline(log_dir):
            return None
        path = posixpath.join(log_dir, name)
        file = self._replaced.get(path)
        if file is None:
            file = self._replaced[path] = ReplacedFile(self._files, path)
        ordered = {key: offsets[key] for key in self._order(path, list(offsets), size_is_known=size_is_known)}
        return file.next(write_offset_checkpoint(ordered))

    def _order(self, path: str, keys: list[TopicPartition], *, size_is_known: bool) -> list[TopicPartition]:
        last_keys, order = self._orders.get((path, size_is_known), ([], []))
        if keys != last_keys:
            order = scala_map_order(keys, size_is_known=size_is_known)
            self._orders[path, size_is_known] = keys, order
        return order

    def _end(self, log_dir: str, name: str, result: Callable[[], None]) -> None:
        try:
            result()
        except OSError as error:
            message = f"Error while writing to checkpoint file {posixpath.join(log_dir, name)}"
            self._failures.maybe_add_offline_log_dir(log_dir, message, error)


def scala_map_order(keys: Iterable[TopicPartition], *, size_is_known: bool = True) -> list[TopicPartition]:
    """Return the keys in the iteration order of a mutable.HashMap of Scala 2.13 that was built from a collection of known size, or entry by
    entry.
    """
    found = list(keys)
    if size_is_known:
        size = 1 << max(int((len(found) + 1) / _LOAD_FACTOR) - 1, 4).bit_length()
    else:
        size = _DEFAULT_TABLE_SIZE
        while len(found) >= size * _LOAD_FACTOR:
            size *= 2

    def place(key: TopicPartition) -> tuple[int, int]:
        spread = topic_partition_hash(key)
        spread ^= (spread & 0xFFFFFFFF) >> 16
        return spread & (size - 1), spread

    return sorted(found, key=place)


def topic_partition_hash(key: TopicPartition) -> int:
    """Return Kafka's TopicPartition.hashCode, a signed 32-bit number."""
    return to_int(31 * (31 + key.partition) + string_hash(key.topic))
