"""The state file of a replay: which records were sent, and the producer id and sequences with which an open round is sent again.

The file is written before each round. It has the offsets that the round covers, so a later run builds the same batches with the same
sequence numbers. A continued run looks for these batches in the log, and a broker recognizes duplicates (Kafka's
ProducerStateEntry.findDuplicateBatch).
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import UsageError
from kops.files import Files
from kops.records.log_offsets import TopicPartition

__all__ = ["SCHEMA", "SourceState", "State", "TargetState"]

SCHEMA: Final = "kops.replay-state/v1"


@dataclass(slots=True)
class SourceState:
    """How far a log was replayed. `position` is the next offset: all records below it were sent, left out or rejected. `end` is the
    exclusive end of the open round."""

    position: int = 0
    end: int | None = None
    is_over: bool = False
    sent: int = 0
    rejected: int = 0
    bytes: int = 0


@dataclass(slots=True)
class TargetState:
    """A partition of the cluster. `sequence` is that of the next batch. `resolved` is the number of records of the open round that were
    sent or rejected. `pieces` has the numbers of records in the following batches. `offset` is the partition's end after the last batch
    that is known to be in it."""

    sequence: int = 0
    resolved: int = 0
    pieces: list[int] = field(default_factory=list)
    offset: int = 0


@dataclass(slots=True)
class State:
    """Everything that a continued run needs. `choices` are the paths and options, which must stay the same."""

    choices: dict[str, Any]
    cluster_id: str | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    rejected_size: int = 0
    topics: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The topic id and number of partitions of each target topic that exists."""
    sources: dict[str, SourceState] = field(default_factory=dict)
    targets: dict[TopicPartition, TargetState] = field(default_factory=dict)

    @property
    def is_open(self) -> bool:
        """Whether a round was begun but is not known to be complete."""
        return any(each.end is not None for each in self.sources.values())

    def to_json(self) -> dict[str, Any]:
        """The document that `load` reads."""
        return {
            "schema": SCHEMA,
            "choices": self.choices,
            "cluster_id": self.cluster_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "rejected_size": self.rejected_size,
            "topics": {name: list(each) for name, each in self.topics.items()},
            "sources": {
                name: [each.position, each.end, each.is_over, each.sent, each.rejected, each.bytes] for name, each in self.sources.items()
            },
            "targets": [
                [key.topic, key.partition, each.sequence, each.resolved, each.pieces, each.offset] for key, each in self.targets.items()
            ],
        }

    def save(self, files: Files, path: str) -> None:
        """Replace the file, and flush it to disk."""
        files.write_atomic(path, json.dumps(self.to_json(), indent=1).encode() + b"\n")

    @classmethod
    def load(cls, files: Files, path: str) -> State:
        """Read the file of an earlier run. Raises UsageError if it is not a state file."""
        try:
            row = json.loads(files.read_all(path))
            if row["schema"] != SCHEMA:
                raise ValueError(f"schema {row['schema']}")
            state = cls(row["choices"], row["cluster_id"], int(row["producer_id"]), int(row["producer_epoch"]), int(row["rejected_size"]))
            state.topics = {name: (str(identity), int(count)) for name, (identity, count) in row["topics"].items()}
            for name, (position, end, is_over, sent, rejected, size) in row["sources"].items():
                state.sources[name] = SourceState(int(position), end, bool(is_over), int(sent), int(rejected), int(size))
            for topic, partition, sequence, resolved, pieces, offset in row["targets"]:
                target = TargetState(int(sequence), int(resolved), [int(count) for count in pieces], int(offset))
                state.targets[TopicPartition(topic, int(partition))] = target
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"{path}: not the state of a replay ({error!r})") from error
        return state
