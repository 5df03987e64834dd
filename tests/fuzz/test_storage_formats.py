"""Storage formats with mutations and noise. A reader returns a value or raises DecodeError, and needs no more memory than the file
justifies.
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Callable

import pytest

from kops.config.values.properties import read_properties
from kops.errors import DecodeError
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.clean_shutdown import read_clean_shutdown
from kops.storage.formats.leader_epoch_checkpoint import effective_epochs, read_leader_epoch_checkpoint
from kops.storage.formats.meta_properties import read_meta_properties
from kops.storage.formats.names import offset_from_file_name, parse_log_file, parse_partition_dir
from kops.storage.formats.partition_metadata import read_partition_metadata
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, read_producer_snapshot, write_producer_snapshot
from kops.storage.formats.quorum_state import read_quorum_state
from kops.storage.segment_files.offset_index import build_offset_index, read_offset_index
from kops.storage.segment_files.time_index import build_time_index, read_time_index
from kops.storage.segment_files.transaction_index import (
    AbortedTxn,
    check_transaction_index,
    read_transaction_index,
    write_transaction_index,
)


def use_offset_index(data: bytes) -> None:
    index = read_offset_index(data, 100)
    list(index)
    index.columns()
    for offset in (-1, 0, 100, 150, 2**63 - 1):
        index.lookup(offset)
        index.truncated_to(offset)
        index.upper_bound(offset)
    index.sanity_check()


def use_time_index(data: bytes) -> None:
    index = read_time_index(data, 100)
    list(index)
    index.columns()
    for value in (-1, 0, 100, 150, 2**63 - 1):
        index.lookup(value)
        index.truncated_to(value)
    index.sanity_check()


def use_name(data: bytes) -> None:
    name = data.decode("utf-8", "surrogateescape")
    parse_log_file(name)
    with_error(parse_partition_dir, name)
    offset_from_file_name(name)


def with_error(read: Callable[[str], object], name: str) -> None:
    try:
        read(name)
    except DecodeError as error:
        assert error.code


SEEDS: dict[str, tuple[Callable[[bytes], object], bytes]] = {
    "offset index": (use_offset_index, build_offset_index(100, [(100 + i, i * 500) for i in range(12)]).data),
    "time index": (use_time_index, build_time_index(100, [(1_700_000_000_000 + i, 100 + i) for i in range(12)]).data),
    "transaction index": (
        lambda data: check_transaction_index(read_transaction_index(data), 5),
        write_transaction_index([AbortedTxn(1, 2, 9, 4), AbortedTxn(5, 6, 17, 8)]),
    ),
    "producer snapshot": (read_producer_snapshot, write_producer_snapshot([ProducerSnapshotEntry(1, 2, 3, 4, 5, 6, 7, 8)] * 3)),
    "offset checkpoint": (read_offset_checkpoint, b"0\n3\norders 0 42\na-b 11 7\nuser_events 3 0\n"),
    "leader epochs": (lambda data: effective_epochs(read_leader_epoch_checkpoint(data)), b"0\n3\n0 0\n3 17\n4 29\n"),
    "meta.properties": (read_meta_properties, b"#\n#x\nnode.id=1\ndirectory.id=Ds3iqmQAgjvEyL7G37aV-w\nversion=1\ncluster.id=c\n"),
    "partition.metadata": (read_partition_metadata, b"version: 0\ntopic_id: Ds3iqmQAgjvEyL7G37aV-w"),
    "quorum-state 0": (
        read_quorum_state,
        b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}',
    ),
    "quorum-state 1": (
        read_quorum_state,
        b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}',
    ),
    "clean shutdown": (read_clean_shutdown, b'{"version":0,"brokerEpoch":12}'),
    "properties": (read_properties, b"a=b\\\n c\n#x\nk\\ 1 : \\u00e4\\\\\n"),
    "names": (use_name, b"orders-0.0123456789abcdef-delete"),
}


def mutate(source: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 5))):
        at = source.randrange(len(changed) + 1)
        match source.randrange(6):
            case 0:
                changed[at : at + 1] = bytes([source.randrange(256)])
            case 1:
                changed[at:at] = source.randbytes(source.randrange(9))
            case 2:
                del changed[at : at + source.randrange(9)]
            case 3:
                del changed[at:]
            case 4:
                part = changed[at : at + source.randrange(20)]
                changed[at:at] = part
            case _:
                changed[at : at + 4] = source.choice(
                    (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\0\0\0\0", b"9999", b"\\u00")
                )
    return bytes(changed)


def run(name: str, trials: int, seed: int) -> None:
    read, data = SEEDS[name]
    source = random.Random(seed)
    refused = 0
    for number in range(trials):
        changed = source.randbytes(source.randrange(80)) if number % 20 == 0 else mutate(source, data)
        try:
            read(changed)
        except DecodeError as error:
            refused += 1
            assert error.code
            assert str(error)
    assert refused or name in ("clean shutdown",)


@pytest.mark.parametrize("name", SEEDS)
def test_mutations(name: str) -> None:
    run(name, 4000, 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEEDS)
def test_many_mutations(name: str) -> None:
    run(name, 100_000, 2)


def test_a_claimed_count_costs_no_memory() -> None:
    snapshot = bytearray(write_producer_snapshot([]))
    snapshot[6:10] = b"\x7f\xff\xff\xff"
    tracemalloc.start()
    try:
        for read, data in ((read_producer_snapshot, bytes(snapshot)), (read_offset_checkpoint, b"0\n2147483647\nt 0 1\n")):
            with pytest.raises(DecodeError):
                read(data)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
