"""`kops log txns` finds exactly the hanging transactions, on every partition of the corpus with transactions and on partitions with hanging
ones.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.coordinators.hanging import HANGING, OPEN, TransactionRow, TransactionSearch
from kops.forensics.coordinators.open_transactions import read_transactions
from kops.forensics.inventory.tree import open_partition
from kops.records import Batch, BatchBuilder, scan
from tests.support import corpus

FILES = OsFiles(read_only=True)
KINDS = ("broker-dir", "cluster", "format")
BATCH = re.compile(r"^baseOffset: (\d+) lastOffset: (\d+) .* producerId: (-?\d+) .* isTransactional: (true|false) isControl: (true|false) ")
MARKER = re.compile(r"^\| offset: \d+ .* endTxnMarker: (\w+) ")
Open = dict[int, tuple[int, int]]
UNKNOWN_ID = 99_000


def with_transactions() -> list[str]:
    """Return the cases whose scripts or nodes have transactions."""
    cases = [case_id for kind in KINDS for case_id in corpus.cases(kind)]
    return [case_id for case_id in cases if "transactions" in case_id or "idempotent" in case_id or not case_id.startswith("v")]


def told(folder: Path) -> tuple[Open, int, int]:
    """Return what Kafka's dump tool shows: producer → offsets of its open transaction, and the numbers of committed and aborted
    transactions.
    """
    open_ones: Open = {}
    ended = {"COMMIT": 0, "ABORT": 0}
    for path in sorted(folder.glob("*.log.deep.txt")):
        producer_id = -1
        for line in path.read_text(errors="replace").splitlines():
            if batch := BATCH.match(line):
                first, last, producer_id = (int(batch[number]) for number in (1, 2, 3))
                if batch[4] == "true" and batch[5] == "false":
                    open_ones[producer_id] = (open_ones.get(producer_id, (first, last))[0], last)
            elif (marker := MARKER.match(line)) and open_ones.pop(producer_id, None) is not None:
                ended[marker[1]] += 1
    return open_ones, ended["COMMIT"], ended["ABORT"]


@pytest.mark.parametrize("case_id", with_transactions())
def test_open_transactions_are_those_that_kafkas_tool_shows(case_id: str) -> None:
    case = corpus.load(case_id)
    dumps = case.root / "truth" / "dump"
    for folder in sorted({path.parent for path in dumps.rglob("*.log.deep.txt")}):
        directory = case.root / folder.relative_to(dumps)
        if not directory.exists() or "__cluster_metadata" in directory.name:  # a stray folder has another random name in the listing
            continue
        found = read_transactions(FILES, open_partition(directory, FILES))
        open_ones, committed, aborted = told(folder)
        assert {one.producer_id: (one.first_offset, one.last_offset) for one in found.open.values()} == open_ones, directory
        assert (found.committed, found.aborted) == (committed, aborted), directory


@pytest.mark.parametrize("case_id", with_transactions())
def test_readers_of_what_is_committed_come_to_the_last_stable_offset(case_id: str) -> None:
    """They read as far as a real consumer did."""
    case = corpus.load(case_id)
    for path in sorted((case.root / "truth" / "records").glob("*.read_committed.meta.json")):
        name = path.name.removesuffix(".read_committed.meta.json")
        folders = [one for one in case.root.glob(f"*/{name}") if list(one.glob("*.log"))]
        for folder in folders:
            end = json.loads(path.read_text())["endOffset"]
            assert read_transactions(FILES, open_partition(folder, FILES)).last_stable_offset == end, folder


def append_transaction(partition: Path, producer_id: int, epoch: int) -> int:
    """Append a transactional batch to a partition's log as its leader does, and return its offset."""
    path = max(partition.glob("*.log"))
    with FILES.open(str(path)) as log:
        batches = [item for item in scan(log) if isinstance(item, Batch)]
    offset = batches[-1].next_offset if batches else int(path.stem)
    leader_epoch = batches[-1].partition_leader_epoch if batches else 0
    builder = BatchBuilder(
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=0,
        transactional=True,
        partition_leader_epoch=leader_epoch,
    )
    builder.append(int(time.time() * 1000), b"k", b"v")
    with open(path, "ab") as file:
        file.write(builder.build())
    return offset


@pytest.mark.parametrize("version", ["2.8.2", "3.9.1", "4.3.0"])
def test_each_hanging_transaction_is_found_and_no_other(version: str, tmp_path: Path) -> None:
    """They are of producers that no coordinator knows, and of one whose transaction ended long ago, in partitions of a real node."""
    node = corpus.load(f"cluster-{version}").copy(tmp_path / "n1", "nodes/n1")
    before = list(TransactionSearch([str(node)], FILES).rows())
    assert {row.state for row in before} == {OPEN}
    live = (path for path in node.glob("*-*") if not path.name.startswith("__") and not path.name.endswith("-delete"))
    partitions = sorted(path for path in live if list(path.glob("*.log")))
    planted = [(path.name, append_transaction(path, UNKNOWN_ID + number, 0)) for number, path in enumerate(partitions)]
    # The coordinator knows this producer, but its last transaction is complete.
    search = TransactionSearch([str(node)], FILES)
    known = next(one for one in search.log.by_producer.values() if one.state == "CompleteCommit")
    assert known.producer_id is not None and known.producer_epoch is not None
    planted.append((partitions[0].name, append_transaction(partitions[0], known.producer_id, known.producer_epoch)))
    rows = list(TransactionSearch([str(node)], FILES).rows())
    hanging = [row for row in rows if row.state == HANGING]
    assert sorted((f"{row.topic}-{row.partition}", row.first_offset) for row in hanging) == sorted(planted)
    assert [key(row) for row in rows if row.state == OPEN] == [key(row) for row in before]
    for row in hanging:
        assert row.command == f"kops txn abort --topic {row.topic} --partition {row.partition} --start-offset {row.first_offset}"


def key(row: TransactionRow) -> tuple[object, ...]:
    """Return which transaction it is."""
    return row.topic, row.partition, row.producer_id, row.first_offset
