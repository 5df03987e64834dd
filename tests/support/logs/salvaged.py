"""A salvaged partition for tests of `kops log replay`: its contents, and what a cluster must have after the replay."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from kops.records import BatchBuilder
from kops.records.build import end_txn_marker
from kops.records.record import Header

# The fields that are the same after a replay: timestamp, key, value, headers.
Row = tuple[int, str | None, str | None, str]
START_MS = 1_700_000_000_000


class SalvagedLog:
    """Batches of a partition with a hole in the offsets. `committed` and `every` are the rows that a replay sends, by isolation level."""

    def __init__(self) -> None:
        self.data = b""
        self.offset = 3
        self.committed: list[Row] = []
        self.every: list[Row] = []

    def batch(
        self, count: int, *, size: int = 20, producer: int = -1, sequence: int = -1, sent: bool = True, tombstone: bool = False
    ) -> None:
        """Add some records. `producer` begins or continues a transaction. `sent` says whether the transaction will be committed."""
        extra = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True} if producer >= 0 else {}
        builder = BatchBuilder(base_offset=self.offset, codec="gzip" if size > 100 else "none", **extra)  # type: ignore[arg-type]
        for number in range(count):
            offset = self.offset + number
            key = None if offset % 7 == 0 else b"key-%d" % (offset % 5)
            value = None if tombstone else b"%d/" % offset + b"v" * size
            headers: list[Header] = [("h", b"%d" % offset), ("none", None)] if offset % 3 else []
            builder.append(START_MS + 17 * offset, key, value, headers)
            pairs = json.dumps([[name, text(content)] for name, content in headers])
            self.every.append((START_MS + 17 * offset, text(key), text(value), pairs))
            self.committed += self.every[-1:] if sent else []
        self.data += builder.build()
        self.offset += count

    def marker(self, producer: int, *, commit: bool) -> None:
        """Add the end of a transaction."""
        self.data += end_txn_marker(self.offset, START_MS, commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0)
        self.offset += 1

    def write(self, folder: Path) -> Path:
        """Write the partition directory."""
        folder.mkdir(parents=True)
        (folder / "00000000000000000003.log").write_bytes(self.data)
        return folder


def salvaged_log(*, batches: int = 6, size: int = 20) -> SalvagedLog:
    """Return a log with committed, aborted and open transactions between records without one, tombstones, and a hole."""
    log = SalvagedLog()
    log.batch(4)
    log.batch(3, producer=5, sequence=0)
    log.batch(2, producer=6, sequence=0, sent=False)
    log.marker(5, commit=True)
    log.offset += 10
    log.batch(2, tombstone=True)
    log.marker(6, commit=False)
    log.batch(2, producer=7, sequence=0, sent=False)
    for _ in range(batches):
        log.batch(5, size=size)
    return log


def text(data: bytes | None) -> str | None:
    """Return a value as kops prints it."""
    return None if data is None else b64encode(data).decode()


def row_of(document: dict[str, Any]) -> Row:
    """Return the fields of a record's document that are the same after a replay."""
    return document["timestamp"], document["key"], document["value"], json.dumps(document["headers"])
