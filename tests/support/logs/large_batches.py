"""Batches whose decompressed size is far larger than the memory that they may take, and what kops does with them in a process of its own.

As a program, `python -m tests.support.logs.large_batches STEPS FOLDER CODEC MAGIC TOTAL RECORD` makes a batch of `TOTAL` bytes in records
of `RECORD` bytes and runs the steps (names separated by commas). It prints a line of JSON with the last offset of each step and the peak
memory of the process after it.
"""

from __future__ import annotations

import json
import resource
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from kops.config.topic import topic_config
from kops.files import OsFiles
from kops.records import Batch
from kops.records.build import write_batch, write_message
from kops.records.compression import CODEC_IDS, Compressor
from kops.records.varint import write_varint

PROJECT = Path(__file__).parents[3]
TIME_MS = 1_700_000_000_000
MIB = 1 << 20


def count_of(total: int, record: int) -> int:
    """Return how many records the batch has."""
    return max(1, total // record)


def large_batch(codec: str, magic: int, total: int, record: int) -> bytes:
    """Return a batch of records of zeroes with two keys in turn. The batch of v2 or set of v1 is made as a stream."""
    count = count_of(total, record)
    compressor = Compressor(CODEC_IDS[codec], magic=magic)
    for number in range(count):
        for piece in _record(magic, number, b"key-%d" % (number % 2), record):
            compressor.write(piece)
    packed = compressor.finish()
    if magic < 2:
        return write_message(magic, count - 1, TIME_MS, None, packed, codec=CODEC_IDS[codec])
    return write_batch(
        packed,
        base_offset=0,
        last_offset=count - 1,
        count=count,
        attributes=CODEC_IDS[codec],
        base_timestamp=TIME_MS,
        max_timestamp=TIME_MS,
        partition_leader_epoch=0,
    )


def _record(magic: int, number: int, key: bytes, size: int) -> Iterator[bytes]:
    """Yield a record whose value is `size` zeroes, in pieces."""
    value = [bytes(MIB)] * (size // MIB) + [bytes(size % MIB)]
    if magic == 2:
        front = b"\0\0" + write_varint(number) + write_varint(len(key)) + key + write_varint(size)
        yield write_varint(len(front) + size + 1) + front
        yield from value
        yield b"\0"
        return
    checked = struct.pack(">bbqi", magic, 0, TIME_MS, len(key)) + key + struct.pack(">i", size)
    crc = zlib.crc32(checked)
    for piece in value:
        crc = zlib.crc32(piece, crc)
    yield struct.pack(">qiI", number, len(checked) + size + 4, crc) + checked
    yield from value


def _open(folder: Path, **settings: str) -> Any:
    from tests.support.logs.twins.cleaning import open_log

    return open_log(str(folder), config=topic_config({"max.message.bytes": "100000000", **settings}), clean=False)


def append(folder: Path, data: bytes) -> int:
    """Append as a leader."""
    log = _open(folder)
    return int(log.append_as_leader(data, 0).last_offset)


def append_recompressed(folder: Path, data: bytes) -> int:
    """Append as a leader to a topic of another codec."""
    target = "zstd" if Batch(data).codec != "zstd" else "gzip"
    log = _open(folder, **{"compression.type": target})
    info = log.append_as_leader(data, 0)
    (batch,) = [batch for segment in log.segments for batch in segment.log.batches()]
    assert batch.codec == target
    return int(info.last_offset)


def append_uncompressed(folder: Path, data: bytes) -> int:
    """Append as a leader to a topic without compression."""
    log = _open(folder, **{"compression.type": "uncompressed", "max.message.bytes": "1000000000"})
    info = log.append_as_leader(data, 0)
    return int(info.last_offset)


def follow(folder: Path, data: bytes) -> int:
    """Append as a follower."""
    log = _open(folder)
    return int(log.append_as_follower(data, 0).last_offset)


def load(folder: Path, data: bytes) -> int:
    """Start without a clean stop, which goes through all batches. Then look up the offset of a time."""
    _write(folder, data)
    log = _open(folder)
    assert log.fetch_offset_by_timestamp(TIME_MS).offset == 0
    return int(log.log_end_offset) - 1


def verify(folder: Path, data: bytes) -> int:
    """Run `kops log verify --level deep`."""
    from kops.forensics.verify.run import verify as run

    _write(folder, data)
    found = [finding for finding in run([str(folder)], "deep", files=OsFiles(read_only=True)).findings if finding.is_problem]
    assert {finding.code for finding in found} <= {"index-missing", "time-index-missing"}, found
    return Batch(data).last_offset


def dump_documents(folder: Path, data: bytes) -> int:
    """Run `kops log dump --print-data-log --format jsonl`."""
    from kops.forensics.dump.documents import DocumentOptions, Documents
    from kops.forensics.inventory.tree import open_paths

    entry = open_paths([str(_write(folder, data))], OsFiles(read_only=True)).loose_files[0]
    last = -1
    for document in Documents(OsFiles(read_only=True), DocumentOptions(records=True)).of_file(entry):
        last = document["offset"]
    return last


def dump_text(folder: Path, data: bytes) -> int:
    """Run `kops log dump --print-data-log --format kafka`."""
    from kops.forensics.dump.kafka_text import KafkaDump
    from kops.forensics.dump.text import DumpOptions, DumpText

    lines = 0

    def out(text: bytes) -> None:
        nonlocal lines
        lines += text.count(b"payload: ")

    text = DumpText(out, out)
    KafkaDump(OsFiles(read_only=True), DumpOptions(print_data_log=True), text).file(str(_write(folder, data)))
    assert not text.problems, text.problems
    return lines - 1


def export(folder: Path, data: bytes) -> int:
    """Run `kops log export`."""
    from kops.forensics.inventory.tree import open_paths
    from kops.forensics.lines.exporting import ExportCounts, export_documents

    _write(folder, data)
    counts = ExportCounts()
    for _ in export_documents(OsFiles(read_only=True), open_paths([str(folder)], OsFiles(read_only=True)), counts):
        pass
    return counts.records - 1


def recover(folder: Path, data: bytes) -> int:
    """Look at every record, as `recover` does first."""
    from kops.forensics.plans.items import Item, stream_items

    (item,) = stream_items(OsFiles(read_only=True), str(_write(folder, data)))
    assert isinstance(item, Item) and not item.note
    return item.last


def read(folder: Path, data: bytes) -> int:
    """Read record by record, as a consumer does."""
    last = -1
    for record in Batch(data).iterate():
        last = record.offset
    return last


def compact(folder: Path, data: bytes) -> int:
    """Run a round of the cleaner that keeps two records."""
    from kops.storage.cleaning._hot_clean import OffsetMap
    from kops.storage.cleaning.cleaner import Cleaner
    from tests.support.logs.twins.cleaning import NOW_MS, whole

    log = _open(folder)
    log.append_as_follower(data, 0)
    log.roll()
    Cleaner(OffsetMap(1 << 16), now_ms=lambda: NOW_MS).clean(log, whole(log))
    left = [record.offset for segment in log.segments for batch in segment.log.batches() for record in batch.iterate()]
    assert len(left) == min(2, Batch(data).last_offset + 1)
    return int(left[-1])


def spark_rows(folder: Path, data: bytes) -> int:
    """Read the rows of the data source."""
    from kops.forensics.verify.parts import Part
    from kops.spark.source.rows import Source, Wanted, read_parts

    path = str(_write(folder, data))
    work = [(Part(0, path, 0, len(data)), Source(path, "t", 0, 0, "live", len(data)))]
    rows = sum(part.num_rows for part in read_parts(OsFiles(read_only=True), work, Wanted("records", ("offset", "key", "value"))))
    return int(rows) - 1


def _write(folder: Path, data: bytes) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "00000000000000000000.log"
    path.write_bytes(data)
    return path


STEPS: dict[str, Callable[[Path, bytes], int]] = {
    step.__name__: step
    for step in (
        *(append, append_recompressed, append_uncompressed, follow, load, verify, dump_documents, dump_text),
        *(export, recover, read, compact, spark_rows),
    )
}


def in_process(steps: Iterable[str], folder: Path, codec: str, magic: int, total: int, record: int) -> dict[str, tuple[int, int]]:
    """Run the steps in a process of their own. Return for each step the last offset and the peak memory of the process in bytes."""
    numbers = [str(magic), str(total), str(record)]
    command = [sys.executable, "-m", "tests.support.logs.large_batches", ",".join(steps), str(folder), codec, *numbers]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {step: (last, peak) for step, (last, peak) in json.loads(done.stdout).items()}


def peak_memory() -> int:
    """Return the peak memory of this process in bytes.

    Linux includes in `ru_maxrss` the memory that the parent had when it started this process, so the peak is read elsewhere there.
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) << 10 for line in status.read_text().splitlines() if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: list[str]) -> None:
    """Run the program."""
    steps, folder, codec, *numbers = arguments
    magic, total, record = map(int, numbers)
    data = large_batch(codec, magic, total, record)
    found = {}
    for step in steps.split(","):
        place = Path(folder) / step / "orders-0"
        place.mkdir(parents=True)
        last = STEPS[step](place, data)
        found[step] = (last, peak_memory())
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
