"""Every small file of storage in the corpus can be read. Its values are those of Kafka's dump tool, and writing them gives the same bytes
again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import pytest

from kops.errors import DecodeError
from kops.storage.formats import names
from kops.storage.formats.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kops.storage.formats.clean_shutdown import read_clean_shutdown, write_clean_shutdown
from kops.storage.formats.leader_epoch_checkpoint import effective_epochs, read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from kops.storage.formats.meta_properties import read_meta_properties, write_meta_properties
from kops.storage.formats.partition_metadata import read_partition_metadata, write_partition_metadata
from kops.storage.formats.producer_snapshot import read_producer_snapshot, write_producer_snapshot
from kops.storage.formats.quorum_state import read_quorum_state, write_quorum_state
from kops.storage.segment_files.offset_index import OffsetIndex, read_offset_index, write_offset_index
from kops.storage.segment_files.time_index import TimeIndex, read_time_index, write_time_index
from kops.storage.segment_files.transaction_index import check_transaction_index, read_transaction_index, write_transaction_index
from tests.support import corpus

# The damaged files that can't be read, by case. All others in the corpus can be read without an error.
B = "broker-damage-4.3.0-"
D = "damage-4.3.0-"
BROKEN: dict[str, dict[str, str]] = {
    B + "cleaner-malformed": {"disk1/cleaner-offset-checkpoint": "checkpoint-malformed"},
    B + "cleaner-malformed-two-dirs": {"disk2/cleaner-offset-checkpoint": "checkpoint-malformed"},
    # Kafka itself writes a line there that it can't read: somebody made a directory whose topic name has a space.
    B + "directory-name-bad-characters": {"disk1/recovery-point-offset-checkpoint": "checkpoint-malformed"},
    B + "dynamic-quorum-state-empty": {"__cluster_metadata-0/quorum-state": "quorum-state"},
    B + "flip-old-recovery-point-not-a-number": {"disk1/recovery-point-offset-checkpoint": "checkpoint-number"},
    B + "high-watermark-malformed-line": {"disk1/replication-offset-checkpoint": "checkpoint-malformed"},
    B + "high-watermark-malformed-two-dirs": {"disk2/replication-offset-checkpoint": "checkpoint-malformed"},
    B + "high-watermark-not-a-number": {"disk1/replication-offset-checkpoint": "checkpoint-number"},
    B + "log-start-malformed-line": {"disk1/log-start-offset-checkpoint": "checkpoint-malformed"},
    B + "log-start-malformed-two-dirs": {"disk2/log-start-offset-checkpoint": "checkpoint-malformed"},
    B + "log-start-not-a-number": {"disk1/log-start-offset-checkpoint": "checkpoint-number"},
    B + "meta-directory-id-malformed": {"disk1/meta.properties": "meta-properties"},
    B + "meta-malformed": {"disk1/meta.properties": "properties"},
    B + "meta-malformed-two-dirs": {"disk2/meta.properties": "properties"},
    B + "meta-node-id-missing": {"disk1/meta.properties": "meta-properties"},
    B + "meta-node-id-not-a-number": {"disk1/meta.properties": "meta-properties"},
    B + "meta-torn": {"disk1/meta.properties": "meta-properties"},
    B + "meta-version-wrong": {"disk1/meta.properties": "meta-properties"},
    B + "quorum-state-empty": {"__cluster_metadata-0/quorum-state": "quorum-state"},
    B + "quorum-state-malformed": {"__cluster_metadata-0/quorum-state": "quorum-state"},
    B + "quorum-state-version-wrong": {"__cluster_metadata-0/quorum-state": "quorum-state"},
    B + "recovery-point-count-wrong": {"disk1/recovery-point-offset-checkpoint": "checkpoint-malformed"},
    B + "recovery-point-malformed-line": {"disk1/recovery-point-offset-checkpoint": "checkpoint-malformed"},
    B + "recovery-point-malformed-two-dirs": {"disk2/recovery-point-offset-checkpoint": "checkpoint-malformed"},
    B + "recovery-point-not-a-number": {"disk1/recovery-point-offset-checkpoint": "checkpoint-number"},
    B + "recovery-point-version-wrong": {"disk1/recovery-point-offset-checkpoint": "checkpoint-malformed"},
    "damage-2.8.2-index-truncated-odd": {"00000000000000000021.index": "corrupt-offset-index"},
    "damage-2.8.2-timeindex-truncated-odd": {"00000000000000000021.timeindex": "corrupt-time-index"},
    D + "index-garbage-active": {"00000000000000000084.index": "corrupt-offset-index"},
    D + "index-truncated-odd": {"00000000000000000021.index": "corrupt-offset-index"},
    D + "leader-epoch-malformed": {"leader-epoch-checkpoint": "checkpoint-malformed"},
    D + "partition-metadata-malformed": {"partition.metadata": "partition-metadata-malformed"},
    D + "snapshot-corrupt-all": {
        "00000000000000000021.snapshot": "snapshot-crc",
        "00000000000000000042.snapshot": "snapshot-crc",
        "00000000000000000063.snapshot": "snapshot-schema",
        "00000000000000000084.snapshot": "snapshot-schema",
        "00000000000000000099.snapshot": "snapshot-schema",
    },
    D + "snapshot-corrupt-last": {"00000000000000000099.snapshot": "snapshot-crc"},
    D + "snapshot-empty-last": {"00000000000000000099.snapshot": "snapshot-schema"},
    D + "timeindex-garbage-old": {"00000000000000000021.timeindex": "corrupt-time-index"},
    D + "timeindex-last-before-first": {"00000000000000000021.timeindex": "corrupt-time-index"},
    D + "timeindex-truncated-odd": {"00000000000000000021.timeindex": "corrupt-time-index"},
}
# Files with contents that Kafka does not write but still reads: (case, end of the path).
LENIENT = (
    (B + "clean-shutdown-malformed", names.CLEAN_SHUTDOWN),
    (B + "torn-tail-clean-shutdown-malformed", names.CLEAN_SHUTDOWN),
    (B + "meta-empty", names.META_PROPERTIES),
    (B + "meta-garbage", names.META_PROPERTIES),
    (B + "meta-version-zero", names.META_PROPERTIES),
    # These have a line end after the topic id.
    (B + "partition-other-topic-id", names.PARTITION_METADATA),
    (B + "partition-unknown-topic-id", names.PARTITION_METADATA),
    ("broker-dir-4.3.0", "ghost-0/partition.metadata"),
    ("broker-dir-4.3.0", "-stray/partition.metadata"),
    (D + "txnindex-truncated", ".txnindex"),
)
TEXT_FORMATS: dict[str, Callable[[bytes], bytes]] = {
    **dict.fromkeys(names.OFFSET_CHECKPOINTS, lambda data: write_offset_checkpoint(read_offset_checkpoint(data))),
    names.META_PROPERTIES: lambda data: write_meta_properties(read_meta_properties(data), date=second_line(data)),
    names.PARTITION_METADATA: lambda data: write_partition_metadata(read_partition_metadata(data)),
    names.QUORUM_STATE: lambda data: write_quorum_state(read_quorum_state(data)),
    names.CLEAN_SHUTDOWN: lambda data: write_clean_shutdown(read_clean_shutdown(data)),
}


class Seen(NamedTuple):
    path: str
    data: bytes
    name: names.LogFileName | None


def second_line(data: bytes) -> str:
    """Return the date in a meta.properties, without its `#`."""
    return [*data.decode("latin-1").split("\n"), ""][1][1:]


def files_of(case: corpus.Case) -> Iterator[Seen]:
    for directory, _, found in os.walk(case.root):
        if os.path.relpath(directory, case.root).split(os.sep)[0] == "truth":
            continue
        for name in found:
            parsed = names.parse_log_file(name)
            if (
                (parsed is not None and parsed.kind not in ("log", "checkpoint"))
                or name in TEXT_FORMATS
                or name == "leader-epoch-checkpoint"
            ):
                path = os.path.join(directory, name)
                with open(path, "rb") as file:
                    yield Seen(os.path.relpath(path, case.root), file.read(), parsed)


def read_and_write(seen: Seen) -> bytes:
    """Return the result of writing the file's contents. It also runs the sanity checks, except for the tail of a killed broker's time
    index.
    """
    data, name = seen.data, seen.name
    if name is None:
        base = os.path.basename(seen.path)
        if base in TEXT_FORMATS:
            return TEXT_FORMATS[base](data)
        entries = read_leader_epoch_checkpoint(data)
        assert effective_epochs(entries) == entries
        return write_leader_epoch_checkpoint(entries)
    if name.kind == "index":
        offsets = read_offset_index(data, name.offset)
        offsets.sanity_check()
        return write_offset_index(offsets)
    if name.kind == "timeindex":
        times = read_time_index(data, name.offset)
        if 0 < times.written < times.entries:
            with pytest.raises(DecodeError, match="the last timestamp 0"):
                times.sanity_check()
        else:
            times.sanity_check()
        return write_time_index(times)
    if name.kind == "txnindex":
        aborted = read_transaction_index(data)
        check_transaction_index(aborted, name.offset)
        return write_transaction_index(aborted)
    return write_producer_snapshot(read_producer_snapshot(data))


@pytest.mark.parametrize("case_id", corpus.cases())
def test_every_file_reads_and_is_written_again(case_id: str) -> None:
    broken = {}
    for seen in files_of(corpus.load(case_id)):
        try:
            written = read_and_write(seen)
        except DecodeError as error:
            broken[seen.path] = error.code
            continue
        if written != seen.data and not any(case_id == case and seen.path.endswith(end) for case, end in LENIENT):
            # Kafka creates checkpoint files empty and fills them later.
            assert (seen.path.endswith("checkpoint"), seen.data) == (True, b""), seen.path
    expected = BROKEN.get(case_id, {})
    assert {end: code for path, code in broken.items() for end in expected if path.endswith(end)} == expected
    assert all(any(path.endswith(end) for end in expected) for path in broken), broken


@pytest.mark.parametrize("case_id", corpus.cases())
def test_values_are_those_of_the_dump_tool(case_id: str) -> None:
    case = corpus.load(case_id)
    for seen in files_of(case):
        if seen.name is None or seen.name.suffix:
            continue
        mode = "index" if seen.name.kind in ("index", "timeindex") else "plain"
        truth = case.root / "truth" / "dump" / f"{seen.path}.{mode}.txt"
        if not truth.exists():
            continue
        text = truth.read_text()
        lines = [line for line in text.splitlines() if re.match(r"(offset|timestamp|version|producerId): ", line)]
        ours = dump(seen)
        if "\n!! " in text:
            assert ours[: len(lines)] == lines, seen.path
        else:
            assert ours == lines, seen.path


def dump(seen: Seen) -> list[str]:
    """Return the file as DumpLogSegments shows it. It stops at an entry of zeros."""
    name, data = seen.name, seen.data
    assert name is not None
    if name.kind == "index":
        index = OffsetIndex(name.offset, data)
        shown = [index[slot] for slot in range(min(index.entries, index.written + 1))]
        end = next((i for i, entry in enumerate(shown) if i and entry.offset == name.offset), len(shown))
        return [f"offset: {entry.offset} position: {entry.position}" for entry in shown[:end]]
    if name.kind == "timeindex":
        times = TimeIndex(name.offset, data)
        points = [times[slot] for slot in range(min(times.entries, times.written + 1))]
        end = next((i for i, point in enumerate(points) if i and point.offset == name.offset), len(points))
        return [f"timestamp: {point.timestamp} offset: {point.offset}" for point in points[:end]]
    if name.kind == "txnindex":
        return [
            f"version: {txn.version} producerId: {txn.producer_id} firstOffset: {txn.first_offset} lastOffset: {txn.last_offset}"
            f" lastStableOffset: {txn.last_stable_offset}"
            for txn in read_transaction_index(data)
        ]
    try:
        producers = read_producer_snapshot(data)
    except DecodeError:
        return []
    return [
        f"producerId: {p.producer_id} producerEpoch: {p.producer_epoch} coordinatorEpoch: {p.coordinator_epoch} currentTxnFirstOffset: "
        + ("OptionalLong.empty" if p.current_txn_first_offset < 0 else f"OptionalLong[{p.current_txn_first_offset}]")
        + f" lastTimestamp: {p.timestamp}"
        + (
            f" firstSequence: {p.last_sequence - p.offset_delta} lastSequence: {p.last_sequence} lastOffset: {p.last_offset}"
            f" offsetDelta: {p.offset_delta} timestamp: {p.timestamp}"
            if p.last_offset >= 0
            else ""
        )
        for p in producers
    ]


def test_names_of_directories_in_the_corpus() -> None:
    """Every directory that Kafka made is a partition's. The names that keep a broker from starting are not."""
    refused = set()
    seen: set[str] = set()
    for group in ("broker-dir", "broker-damage", "cluster"):
        for case_id in corpus.cases(group):
            for directory, subdirectories, _ in os.walk(corpus.load(case_id).root):
                if "truth" in directory.split(os.sep):
                    continue
                seen.update(name for name in subdirectories if re.search("[-.]", name))
    for name in seen:
        try:
            parsed = names.parse_partition_dir(name)
        except DecodeError:
            refused.add(name)
        else:
            assert names.partition_dir_name(*parsed) == name
    assert len(seen) > 50
    # `-0` and `orders-zero` are damage. `broker-3-live` has the log directory of a running broker.
    assert refused == {"-0", "orders-zero", "broker-3-live"}
