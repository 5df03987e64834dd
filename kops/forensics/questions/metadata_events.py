"""Topics created and deleted, elections and changes of in-sync replicas, from the records of the metadata log.

Sources: Kafka's TopicRecord, RemoveTopicRecord, PartitionRecord and PartitionChangeRecord, and the `PartitionRegistration` that they make.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.inventory.tree import PartitionDir
from kops.metadata import read_metadata_record
from kops.records import Batch, scan

NO_LEADER = -1


class MetadataEvents:
    """A replay of the records that matter. Snapshots provide the names and leaders that the log does not have any more."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._leaders: dict[tuple[str, int], tuple[int, int]] = {}
        self._in_sync: dict[tuple[str, int], list[int]] = {}

    def load_snapshots(self, files: Files, directory: PartitionDir) -> None:
        """Read the names of topics in all snapshots. A snapshot that can't be read is left out; `kops log meta verify` reports it."""
        for entry in directory.files:
            if entry.kind != "checkpoint" or entry.suffix:
                continue
            with files.open(entry.path) as file:
                for item in scan(file):
                    if isinstance(item, Batch) and not item.is_control:
                        self._read_names(item)

    def _read_names(self, batch: Batch) -> None:
        try:
            for record in batch.iterate():
                if record.value is not None:
                    found = read_metadata_record(record.value)
                    if found.name == "TopicRecord":
                        self._names[found.fields["topic_id"]] = found.fields["name"]
        except DecodeError:
            return

    def of(self, batch: Batch) -> Iterator[dict[str, Any]]:
        """Yield the events of a batch. Records of a newer Kafka are skipped. Raises DecodeError for a batch that can't be read."""
        for record in batch.iterate():
            if record.value is None:
                continue
            try:
                found = read_metadata_record(record.value)
            except DecodeError:
                continue
            event = self._event(found.name, found.fields)
            if event is not None:
                yield {"time": record.timestamp if record.timestamp >= 0 else None, "offset": record.offset, **event}

    def _event(self, name: str, fields: dict[str, Any]) -> dict[str, Any] | None:
        if name == "TopicRecord":
            self._names[fields["topic_id"]] = fields["name"]
            return {"event": "topic-created", "topic": fields["name"], "partition": None, "detail": f"id {fields['topic_id']}"}
        if name == "RemoveTopicRecord":
            topic = self._names.get(fields["topic_id"], fields["topic_id"])
            return {"event": "topic-deleted", "topic": topic, "partition": None, "detail": f"id {fields['topic_id']}"}
        if name not in ("PartitionRecord", "PartitionChangeRecord"):
            return None
        return self._partition(fields, is_new=name == "PartitionRecord")

    def _partition(self, fields: dict[str, Any], *, is_new: bool) -> dict[str, Any] | None:
        key = fields["topic_id"], fields["partition_id"]
        before = self._leaders.get(key)
        in_sync = fields.get("isr")
        same = {"topic": self._names.get(key[0], key[0]), "partition": key[1]}
        before_in_sync = self._in_sync.get(key)
        if in_sync is not None:
            self._in_sync[key] = in_sync
        leader = fields.get("leader")
        if is_new:
            self._leaders[key] = fields["leader"], fields["leader_epoch"]
            return {**same, "event": "election", "leader_epoch": fields["leader_epoch"], "detail": self._words(None, fields["leader"], key)}
        if leader is not None:
            epoch = None if before is None else before[1] + 1
            self._leaders[key] = leader, epoch if epoch is not None else 0
            return {**same, "event": "election", "leader_epoch": epoch, "detail": self._words(before, leader, key)}
        if in_sync is not None and in_sync != before_in_sync:
            words = f"in sync {in_sync}" if before_in_sync is None else f"in sync {before_in_sync} -> {in_sync}"
            return {**same, "event": "isr", "detail": words}
        return None

    def _words(self, before: tuple[int, int] | None, leader: int, key: tuple[str, int]) -> str:
        def shown(number: int) -> str:
            return "none" if number == NO_LEADER else str(number)

        change = f"leader {shown(leader)}" if before is None else f"leader {shown(before[0])} -> {shown(leader)}"
        return f"{change}, in sync {self._in_sync.get(key, [])}"
