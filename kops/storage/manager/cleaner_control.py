"""The operations that the owner of the logs needs from a log cleaner (Kafka LogCleaner, as LogManager calls it)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kops.storage.formats.checkpoints import TopicPartition
    from kops.storage.unified_log import UnifiedLog


class CleanerControl(Protocol):
    """A log cleaner. Log directories are absolute paths, offsets are log offsets."""

    def abort_cleaning(self, topic_partition: TopicPartition) -> None:
        """Abort a running cleaning of the partition."""

    def abort_and_pause_cleaning(self, topic_partition: TopicPartition) -> None:
        """Abort a running cleaning, and start none until `resume_cleaning`."""

    def resume_cleaning(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Allow the partitions to be cleaned again. Each call undoes one pause."""

    def pause_cleaning_for_non_compacted_partitions(self) -> Mapping[TopicPartition, UnifiedLog]:
        """Return the logs that are not compacted and that the cleaner does not use. It does not touch them until `resume_cleaning`."""

    def update_checkpoints(self, log_dir: str, partition_to_remove: TopicPartition | None = None) -> None:
        """Rewrite the directory's cleaner checkpoint without deleted partitions and without the given one."""

    def maybe_truncate_checkpoint(self, log_dir: str, topic_partition: TopicPartition, offset: int) -> None:
        """Set the partition's checkpoint back to `offset`, because the log now ends below the cleaned part."""

    def alter_checkpoint_dir(self, topic_partition: TopicPartition, source_log_dir: str, target_log_dir: str) -> None:
        """Move the partition's checkpoint to its new directory."""

    def handle_log_dir_failure(self, log_dir: str) -> None:
        """Stop writing the checkpoint of a directory that is offline."""

    def shutdown(self) -> None:
        """Stop cleaning."""
