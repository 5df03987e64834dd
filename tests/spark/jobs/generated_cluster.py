"""A cluster of three brokers with many partitions on disk. Some are damaged, diverged, behind or hanging, and the cluster knows which.

Every partition has five batches of four records at the offsets 0 to 19, from an idempotent producer. Its number decides what is special:

| number modulo 20 | what |
| --- | --- |
| 3 | broker 2 has a damaged batch at 8 to 11 |
| 5 | broker 3 has other records of a later leader epoch at 16 to 19 |
| 9 | all brokers have a damaged batch at 4 to 7 |
| 11 | broker 1 ends at 16 |
| 13 | a transaction at 20 to 23 has no marker, and no coordinator knows it |
| 15 | a transaction at 20 to 23 is committed at 24 |
| 17 | the last batch's sequence is four too far |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kops.coordinators.groups.offset_and_metadata import OffsetAndMetadata
from kops.coordinators.groups.records.classic import offset_commit_record
from kops.files import OsFiles
from kops.records.build import BatchBuilder, end_txn_marker
from kops.storage.segments.recovery import rebuild_indexes

BROKERS: Final = (1, 2, 3)
TOPIC: Final = "many"
BATCHES: Final = 5
RECORDS: Final = 4
END: Final = BATCHES * RECORDS
FIRST_MS: Final = 1_700_000_000_000
STEP_MS: Final = 60_000
DAMAGED, DIVERGED, LOST, BEHIND, HANGING, COMMITTED, GAP = 3, 5, 9, 11, 13, 15, 17


@dataclass
class Generated:
    """A cluster in a folder, with a number of partitions. `value_size` is the size of a record's value."""

    root: Path
    partitions: int
    value_size: int = 20

    @property
    def brokers(self) -> list[Path]:
        """The log directories."""
        return [self.root / f"n{broker}" for broker in BROKERS]

    def of_kind(self, kind: int) -> list[int]:
        """Return the partitions of a kind (their number modulo 20)."""
        return [number for number in range(self.partitions) if number % 20 == kind]

    def write(self) -> None:
        """Write all files."""
        for broker, folder in zip(BROKERS, self.brokers, strict=True):
            folder.mkdir(parents=True)
            text = f"version=1\nbroker.id={broker}\nnode.id={broker}\ncluster.id=generated-for-spark-00\n"
            (folder / "meta.properties").write_text(f"{text}directory.id=AAAAAAAAAAAAAAAAAAAA{broker}A\n")
        for number in range(self.partitions):
            for broker, folder in zip(BROKERS, self.brokers, strict=True):
                batches = list(self._batches(number, broker))
                _write(folder / f"{TOPIC}-{number}", batches, epochs=(0, 1) if number % 20 == DIVERGED and broker == 3 else (0,))
        for folder in self.brokers:
            _write(folder / "__consumer_offsets-0", [self._commits()])
            _write(folder / "__transaction_state-0", [])

    def _batches(self, number: int, broker: int) -> Iterator[bytes]:
        kind = number % 20
        for place in range(BATCHES):
            if kind == BEHIND and broker == 1 and place == BATCHES - 1:
                return
            is_other = kind == DIVERGED and broker == 3 and place == BATCHES - 1
            ahead = RECORDS if kind == GAP and place == BATCHES - 1 else 0
            data = self._data(number, place * RECORDS, 1000 + number, place * RECORDS + ahead, epoch=1 if is_other else 0, other=is_other)
            if (kind == DAMAGED and broker == 2 and place == 2) or (kind == LOST and place == 1):
                data = data[:-3] + bytes([data[-3] ^ 0x20]) + data[-2:]
            yield data
        if kind in (HANGING, COMMITTED):
            yield self._data(number, END, 5000 + number, 0, transactional=True)
        if kind == COMMITTED:
            yield end_txn_marker(
                END + RECORDS,
                FIRST_MS + END * STEP_MS,
                commit=True,
                coordinator_epoch=0,
                producer_id=5000 + number,
                producer_epoch=0,
                partition_leader_epoch=0,
            )

    def _data(
        self, number: int, base: int, producer: int, sequence: int, *, epoch: int = 0, other: bool = False, transactional: bool = False
    ) -> bytes:
        builder = BatchBuilder(
            base_offset=base,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            transactional=transactional,
            partition_leader_epoch=epoch,
        )
        for offset in range(base, base + RECORDS):
            value = b"%d/%d%s" % (number, offset, b" other" if other else b"")
            builder.append(FIRST_MS + offset * STEP_MS, b"key-%d" % (offset % 3), value.ljust(self.value_size, b"."))
        return builder.build()

    def _commits(self) -> bytes:
        builder = BatchBuilder(base_offset=0, partition_leader_epoch=0)
        for number in range(self.partitions):
            record = offset_commit_record("readers", TOPIC, number, OffsetAndMetadata(10, 0, "", FIRST_MS))
            builder.append(FIRST_MS, record.key_bytes(), record.value_bytes())
        return builder.build()


def _write(folder: Path, batches: list[bytes], epochs: tuple[int, ...] = (0,)) -> None:
    folder.mkdir()
    log = folder / f"{0:020d}.log"
    log.write_bytes(b"".join(batches))
    with OsFiles(read_only=True).open(str(log)) as file:
        rebuilt = rebuild_indexes(file, 0)
    log.with_suffix(".index").write_bytes(rebuilt.index)
    log.with_suffix(".timeindex").write_bytes(rebuilt.timeindex)
    starts = {0: 0, 1: END - RECORDS}
    lines = "".join(f"{epoch} {starts[epoch]}\n" for epoch in epochs) if batches else ""
    (folder / "leader-epoch-checkpoint").write_text(f"0\n{len(epochs) if batches else 0}\n{lines}")
