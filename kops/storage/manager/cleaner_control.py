"""What the owner of the logs wants of the log cleaner, whatever cleans (Kafka LogCleaner, as LogManager calls it)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kops.storage.formats.checkpoints import TopicPartition
    from kops.storage.unified_log import UnifiedLog


class CleanerControl(Protocol):
    """Log directories are absolute paths, offsets are log offsets."""

    def abort_cleaning(self, topic_partition: TopicPartition) -> None:
        """End a cleaning of the partition that is going on."""

    def abort_and_pause_cleaning(self, topic_partition: TopicPartition) -> None:
        """End it, and begin none until `resume_cleaning`."""

    def resume_cleaning(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """The partitions may be cleaned again; each call undoes one pause."""

    def pause_cleaning_for_non_compacted_partitions(self) -> Mapping[TopicPartition, UnifiedLog]:
        """The logs that are not compacted and not in use by the cleaner; it leaves them alone until `resume_cleaning`."""

    def update_checkpoints(self, log_dir: str, partition_to_remove: TopicPartition | None = None) -> None:
        """Write the directory's cleaner checkpoint anew, without partitions that are gone and without the one given."""

    def maybe_truncate_checkpoint(self, log_dir: str, topic_partition: TopicPartition, offset: int) -> None:
        """The log ends below what was cleaned: put the partition's checkpoint back to `offset`."""

    def alter_checkpoint_dir(self, topic_partition: TopicPartition, source_log_dir: str, target_log_dir: str) -> None:
        """The partition lives in another directory now: its checkpoint goes with it."""

    def handle_log_dir_failure(self, log_dir: str) -> None:
        """The directory is offline: no checkpoint of it is written any more."""

    def shutdown(self) -> None:
        """Stop cleaning."""
