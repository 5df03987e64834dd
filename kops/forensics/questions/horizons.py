"""Tombstones of a compacted log, and when the cleaner deletes them.

Source: Kafka's `Cleaner.shouldRetainRecord` and `DefaultRecordBatch.deleteHorizonMs` (KIP-534). The first cleaning of a batch with a
tombstone writes a delete horizon into its header, delete.retention.ms later. A cleaning after that time deletes the batch's tombstones.
"""

from __future__ import annotations

from dataclasses import dataclass

from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.verify.parts import Part, part_items
from kops.records import Batch, Damage


@dataclass(slots=True)
class Deletions:
    """Tombstones by what the next cleaning does with them.

    It deletes the `due` ones, keeps the `waiting` ones, and sets the horizon of the `new` ones. It does not reach those from `clean_until`
    on, which count as new or waiting.

    Horizons are times in ms: the next and the last one that has not passed. `without_key` counts records that are invalid in a compacted
    topic. The cleaner deletes them.
    """

    tombstones: int = 0
    due: int = 0
    waiting: int = 0
    new: int = 0
    next_horizon: int | None = None
    last_horizon: int | None = None
    without_key: int = 0
    damaged: int = 0

    def add(self, batch: Batch, clean_until: int, now_ms: int) -> None:
        """Count the tombstones of a batch. If this raises DecodeError, no tombstone of the batch is counted."""
        found = keyless = 0
        for _, _, _, key, value, _, _, _, _, _ in batch.iterate():
            if key is None:
                keyless += 1
            elif value is None:
                found += 1
        self.without_key += keyless
        self.tombstones += found
        horizon = batch.delete_horizon_ms
        if not found:
            return
        if horizon is None:
            self.new += found
        elif horizon <= now_ms and batch.last_offset < clean_until:
            self.due += found
        else:
            self.waiting += found
            if horizon > now_ms:
                self.next_horizon = horizon if self.next_horizon is None else min(self.next_horizon, horizon)
                self.last_horizon = horizon if self.last_horizon is None else max(self.last_horizon, horizon)

    def merge(self, other: Deletions) -> None:
        """Add the numbers of another part of the log."""
        self.tombstones += other.tombstones
        self.due += other.due
        self.waiting += other.waiting
        self.new += other.new
        self.without_key += other.without_key
        self.damaged += other.damaged
        self.next_horizon = min((each for each in (self.next_horizon, other.next_horizon) if each is not None), default=None)
        self.last_horizon = max((each for each in (self.last_horizon, other.last_horizon) if each is not None), default=None)


def read_deletions(files: Files, part: Part, clean_until: int, now_ms: int) -> Deletions:
    """Read the records of a part of a segment. Damage is counted. Raises OSError if it can't be read."""
    found = Deletions()
    with files.open(part.path) as file:
        for item in part_items(file, part):
            if isinstance(item, Damage):
                found.damaged += 1
            elif not item.is_control:
                try:
                    found.add(item, clean_until, now_ms)
                except DecodeError:
                    found.damaged += 1
    return found
