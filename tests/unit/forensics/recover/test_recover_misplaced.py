"""Batches whose bytes are intact but in the wrong place, and batches at which Kafka itself stops."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from kops.files import OsFiles
from kops.files.api import Mode
from kops.files.os_files import OsFile
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import repair
from kops.records import Batch, BatchBuilder, BytesSource, scan
from kops.records.build import empty_batch, write_batch, write_record


def batch(offset: int, count: int = 2) -> bytes:
    builder = BatchBuilder(base_offset=offset, partition_leader_epoch=1)
    for number in range(count):
        builder.append(1_700_000_000_000 + offset, b"key", b"value %d" % (offset + number))
    return builder.build()


def partition(tmp_path: Path, *segments: tuple[int, list[bytes]]) -> Path:
    directory = tmp_path / "orders-0"
    directory.mkdir(parents=True)
    for base, parts in segments:
        (directory / f"{base:020d}.log").write_bytes(b"".join(parts))
    return directory


def batches(directory: Path) -> list[bytes]:
    paths = sorted(directory.glob("*.log"))
    return [bytes(item.data()) for path in paths for item in scan(BytesSource(path.read_bytes())) if isinstance(item, Batch)]


def test_two_batches_that_changed_places_go_back(tmp_path: Path) -> None:
    """Each fills the hole that the other one left: their offsets are right, but not their places."""
    right = [batch(offset) for offset in range(0, 20, 2)]
    wrong = list(right)
    wrong[2], wrong[7] = wrong[7], wrong[2]
    directory = partition(tmp_path, (0, wrong))
    recover([directory], tmp_path / "out")
    assert batches(tmp_path / "out" / "orders-0") == right
    repair([directory], mode="all")
    assert batches(directory) == right


def test_a_copy_in_another_segment_fills_the_hole_of_a_damaged_batch(tmp_path: Path) -> None:
    first, second = [batch(offset) for offset in range(0, 8, 2)], [batch(offset) for offset in range(8, 16, 2)]
    damaged = bytearray(second[1])
    damaged[70] ^= 1
    directory = partition(tmp_path, (0, [*first, second[1]]), (8, [second[0], bytes(damaged), *second[2:]]))
    recover([directory], tmp_path / "out")
    assert batches(tmp_path / "out" / "orders-0") == [*first, *second]


def test_a_wrong_base_offset_is_still_mended(tmp_path: Path) -> None:
    right = [batch(offset) for offset in range(0, 20, 2)]
    wrong = list(right)
    wrong[4] = (8 ^ 64).to_bytes(8, "big") + wrong[4][8:]
    directory = partition(tmp_path, (0, wrong))
    recover([directory], tmp_path / "out")
    assert batches(tmp_path / "out" / "orders-0") == right


def test_a_marker_of_an_unknown_type_ends_no_recovery(tmp_path: Path) -> None:
    """Its checksum is right, so it is kept. Kafka's own load stops there."""
    record = write_record(0, 0, b"\x00\x00\x00\x63", b"\x00\x00\x00\x00\x00\x00")
    fields = {"producer_id": 7, "producer_epoch": 0, "base_timestamp": 1, "max_timestamp": 1, "partition_leader_epoch": 1}
    strange = write_batch(record, base_offset=2, last_offset=2, count=1, attributes=0x30, **fields)
    parts = [batch(0), strange, batch(3)]
    report = recover([partition(tmp_path, (0, parts))], tmp_path / "out")
    assert batches(tmp_path / "out" / "orders-0") == parts
    assert any("Kafka will not open it" in note for note in report.partitions[0].notes)


def test_an_empty_batch_of_the_log_cleaner_is_no_hole(tmp_path: Path) -> None:
    """The last batch of a cleaning round stays as an empty one with its timestamp. An empty batch that a repair put into a hole has no
    timestamp and counts as a hole.
    """
    kept = empty_batch(base_offset=2, last_offset=3, timestamp=1_700_000_000_002, partition_leader_epoch=1)
    filling = empty_batch(base_offset=6, last_offset=7, partition_leader_epoch=1)
    directory = partition(tmp_path, (0, [batch(0), kept, batch(4), filling, batch(8)]))
    report = recover([directory], tmp_path / "out")
    assert batches(tmp_path / "out" / "orders-0") == [batch(0), kept, batch(4), batch(8)]
    assert [list(each) for each in report.partitions[0].lost] == [[6, 7]]


class Refusing(OsFiles):
    """A disk with a bad sector: reading one file fails from a position on."""

    bad = ("", 0)

    def open(self, path: Any, mode: Mode = "r") -> OsFile:
        file = super().open(path, mode)
        if path == self.bad[0]:
            original, start = file.read, self.bad[1]

            def read(position: int, size: int) -> bytes:
                if position + size > start and position < file.size():
                    raise OSError(5, "Input/output error", path)
                return original(position, size)

            file.read = read  # type: ignore[method-assign]
        return file


def test_a_file_that_the_disk_refuses_costs_only_itself(tmp_path: Path) -> None:
    directory = partition(tmp_path, (0, [batch(0), batch(2)]), (4, [batch(4), batch(6)]), (8, [batch(8)]))
    files = Refusing(read_only=True)
    files.bad = (str(directory / f"{4:020d}.log"), 0)
    report = recover([directory], tmp_path / "out", files=files)
    assert batches(tmp_path / "out" / "orders-0") == [batch(0), batch(2), batch(8)]
    assert [(each["code"], each["reason"]) for each in report.to_json()["partitions"][0]["damaged"]] == [
        ("file-unreadable", "Input/output error")
    ]
    assert report.partitions[0].lost == [(4, 7)]


def test_nobody_knows_how_far_an_unreadable_last_segment_went(tmp_path: Path) -> None:
    directory = partition(tmp_path, (0, [batch(0), batch(2)]), (4, [batch(4), batch(6)]))
    files = Refusing(read_only=True)
    files.bad = (str(directory / f"{4:020d}.log"), 0)
    report = recover([directory], tmp_path / "out", files=files)
    assert (report.partitions[0].lost, report.lossy) == ([(4, 4)], True)
    report = recover([directory, partition(tmp_path / "b", (4, [batch(4), batch(6)]))], tmp_path / "both", files=files)
    assert not report.lossy


def test_a_set_of_v1_at_offset_0_is_read_as_kafka_reads_it(tmp_path: Path) -> None:
    """Kafka takes the relative offsets of such a set for absolute ones, so the record of the set with a damaged offset would be at 3, like
    that of its copy."""
    builder = BatchBuilder(magic=1, codec="gzip", base_offset=0)
    builder.append(1, b"key", b"value", offset=3)
    right = builder.build()
    recover([partition(tmp_path, (0, [bytes(8) + right[8:], right]))], tmp_path / "out")
    assert batches(tmp_path / "out" / "orders-0") == [right]


def test_an_empty_last_segment_shows_that_the_one_before_it_is_missing(tmp_path: Path) -> None:
    directory = partition(tmp_path, (0, [batch(0), batch(2)]), (10, []))
    (entry,) = recover([directory], tmp_path / "out").partitions
    assert entry.lost == [(4, 9)]


def test_damage_between_two_copies_of_a_batch_was_before_it_or_behind_it(tmp_path: Path) -> None:
    """Either copy may be the one in the wrong place."""
    twice = empty_batch(base_offset=4, last_offset=6, timestamp=1, partition_leader_epoch=1)
    directory = partition(tmp_path, (0, [batch(0), twice, b"\xa5" * 90, twice, batch(9)]))
    (entry,) = recover([directory], tmp_path / "out").partitions
    assert entry.lost == [(2, 3), (7, 8)]
    assert batches(tmp_path / "out" / "orders-0") == [batch(0), twice, batch(9)]


def test_a_header_with_attributes_that_its_format_lacks_claims_no_offsets(tmp_path: Path) -> None:
    """v0 knows no codec 4."""
    header = (9).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(4)
    for attributes, lost in ((1, [(2, 9)]), (4, [])):
        folder = tmp_path / str(attributes)
        directory = partition(folder, (0, [batch(0), header + bytes((0, attributes)) + b"\xa5" * 94]))
        (entry,) = recover([directory], folder / "out").partitions
        assert entry.lost == lost
