"""`kops log offsets`, `txnstate` and `txns` on the files of real brokers: their facts are those of kafka-dump-log and of real consumers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.files import OsFiles
from kops.forensics.coordinators.hanging import HANGING, OPEN, TransactionSearch
from kops.forensics.coordinators.internal_topics import GROUP_TOPIC, TRANSACTION_TOPIC, open_topic
from kops.forensics.coordinators.offsets import COMMITTED, DELETED, PENDING, read_offsets
from kops.forensics.coordinators.transactional_ids import STATES, read_ids
from kops.forensics.inventory.tree import open_partition
from tests.support import corpus

FILES = OsFiles(read_only=True)
CASES = ("broker-0.11.0.3", "broker-1.1.1", "broker-2.8.2", "broker-dir-4.3.0", "cluster-2.8.2", "cluster-3.9.1", "cluster-4.3.0")
BATCH = re.compile(r"^baseOffset: .* producerId: (-?\d+) producerEpoch: (-?\d+) .* CreateTime: (-?\d+) ")
RECORD = re.compile(r"^\| offset: (\d+) CreateTime: (\d+) .*?(?: key: (\{.*?\}\}) payload: (.*)| endTxnMarker: (\w+) .*)$")
Facts = dict[tuple[str, str, int], tuple[Any, ...]]


def dumps(topic: str) -> list[tuple[str, str]]:
    """Return the case and the directory of every partition that Kafka's tool has dumped."""
    found = []
    for case_id in CASES:
        root = corpus.load(case_id).root
        for path in sorted((root / "truth" / "dump").rglob(f"{topic}-*/*.log.decoded.txt")):
            found.append((case_id, str(path.parent.relative_to(root / "truth" / "dump"))))
    return sorted(set(found))


def told(case_id: str, folder: str) -> Iterator[tuple[int, int, int, Any, Any, str | None]]:
    """Yield (offset, time, producer id, key, payload, marker) of every record in the dumps of a partition."""
    for path in sorted((corpus.load(case_id).root / "truth" / "dump" / folder).glob("*.log.decoded.txt")):
        producer_id = -1
        for line in path.read_text().splitlines():
            if batch := BATCH.match(line):
                producer_id = int(batch[1])
            elif record := RECORD.match(line):
                key = json.loads(record[3]) if record[3] else None
                payload = None if not record[4] or record[4] == "<DELETE>" else json.loads(record[4])
                yield int(record[1]), int(record[2]), producer_id, key, payload, record[5]


def expected_offsets(case_id: str, folder: str, until: int | None = None) -> tuple[Facts, Facts, set[tuple[str, str, int]]]:
    """Return committed offsets, pending offsets and deleted keys, computed from the text by a plain fold."""
    committed: Facts = {}
    pending: dict[int, Facts] = {}
    deleted: set[tuple[str, str, int]] = set()
    for offset, time, producer_id, key, payload, marker in told(case_id, folder):
        if until is not None and time > until:
            continue
        if marker is not None:
            for place, fact in pending.pop(producer_id, {}).items():
                if marker == "COMMIT" and (place not in committed or committed[place][-1] < fact[-1]):
                    committed[place] = fact
        elif key is not None and key["type"] in ("0", "1"):
            place = (key["data"]["group"], key["data"]["topic"], key["data"]["partition"])
            if payload is None:
                committed.pop(place, None)
                deleted.add(place)
                continue
            data = payload["data"]
            fact = (data["offset"], data["metadata"], data["commitTimestamp"], offset)
            (committed if producer_id < 0 else pending.setdefault(producer_id, {}))[place] = fact
    waiting = {place: fact for facts in pending.values() for place, fact in facts.items()}
    return committed, waiting, deleted - committed.keys()


@pytest.mark.parametrize(("case_id", "folder"), dumps(GROUP_TOPIC))
def test_offsets_are_those_that_kafkas_tool_shows(case_id: str, folder: str) -> None:
    partition = open_partition(corpus.load(case_id).root / folder, FILES)
    times = [None, *sorted({time for _, time, *_ in told(case_id, folder)})[::7]]
    for until in times:
        found = read_offsets(FILES, partition, at_ms=until)
        assert (found.raw, found.lost) == ([], [])
        states: dict[str, Facts] = {COMMITTED: {}, PENDING: {}, DELETED: {}}
        for one in found.replay.positions(partition.name, 1):
            states[one.state][one.place.group, one.place.topic, one.place.partition] = (
                one.offset,
                one.metadata,
                one.timestamp,
                one.record_offset,
            )
        committed, pending, deleted = expected_offsets(case_id, folder, until)
        assert states[COMMITTED] == committed
        assert states[PENDING] == pending
        assert states[DELETED].keys() == deleted


def test_there_are_offsets_of_every_state() -> None:
    states = [set(), set(), set()]  # type: list[set[object]]
    for case_id, folder in dumps(GROUP_TOPIC):
        for seen, facts in zip(states, expected_offsets(case_id, folder), strict=True):
            seen.update(facts)
    assert all(states)


@pytest.mark.parametrize(("case_id", "folder"), dumps(TRANSACTION_TOPIC))
def test_transactional_ids_are_those_that_kafkas_tool_shows(case_id: str, folder: str) -> None:
    newest: dict[str, Any] = {}
    for offset, _, _, key, payload, _ in told(case_id, folder):
        if key is not None:
            newest[key["data"]["transactionalId"]] = None if payload is None else (offset, payload)
    found = read_ids(FILES, open_partition(corpus.load(case_id).root / folder, FILES))
    assert (found.raw, found.lost) == ([], [])
    assert found.ids.keys() == newest.keys()
    for name, expected in newest.items():
        one = found.ids[name]
        if expected is None:
            assert one.state == "Deleted"
            continue
        offset, payload = expected
        data = payload["data"]
        partitions = [(each["topic"], number) for each in data["transactionPartitions"] or () for number in each["partitionIds"]]
        assert one.record_offset == offset
        assert str(one.version) == payload["version"]
        assert (one.producer_id, one.producer_epoch) == (data["producerId"], data["producerEpoch"])
        assert one.state == STATES[data["transactionStatus"]]
        assert sorted(one.partitions) == sorted(partitions)
        assert one.timeout_ms == data["transactionTimeoutMs"]
        assert one.updated_ms == data["transactionLastUpdateTimestampMs"]
        assert (-1 if one.started_ms is None else one.started_ms) == data["transactionStartTimestampMs"]


@pytest.mark.parametrize("case_id", ["v2-0.11.0.3-transactions", "v2-2.8.2-transactions", "v2-3.9.1-transactions", "v2-4.3.0-transactions"])
def test_open_transactions_hold_consumers_back(case_id: str) -> None:
    case = corpus.load(case_id)
    search = TransactionSearch([str(case.root / "data")], FILES)
    rows = list(search.rows())
    assert len(rows) == sum("end=open" in line for line in case.json["script"])
    assert {row.state for row in rows} == {OPEN}
    assert [row.holds_lso for row in rows] == [True] + [False] * (len(rows) - 1)
    [meta] = (case.root / "truth" / "records").glob("*.read_committed.meta.json")
    end = json.loads(meta.read_text())["endOffset"]
    assert {row.last_stable_offset for row in rows} == {end}
    assert min(row.first_offset or 0 for row in rows) == end
    ended = sum(line.startswith("txn ") and "end=open" not in line for line in case.json["script"])
    assert search.committed + search.aborted == ended


@pytest.mark.parametrize("case_id", ["cluster-2.8.2", "cluster-3.9.1", "cluster-4.3.0"])
def test_a_transaction_that_its_coordinator_knows_does_not_hang(case_id: str) -> None:
    nodes = corpus.load(case_id).root / "nodes"
    brokers = sorted(path for path in nodes.iterdir() if list(path.glob("__transaction_state-*")))
    for paths in ([str(nodes)], *([str(path)] for path in brokers)):
        rows = list(TransactionSearch(paths, FILES).rows())
        assert [(row.topic, row.partition, row.state, row.transactional_id) for row in rows] == [
            ("__consumer_offsets", 2, OPEN, "cluster-tx-3"),
            ("sensor.readings-multi", 1, OPEN, "cluster-tx-3"),
        ]
        assert {row.command for row in rows} == {"kops txn abort --transactional-id cluster-tx-3"}


def test_a_transaction_that_its_coordinator_does_not_know_hangs(tmp_path: Path) -> None:
    """Its coordinator's partition is replaced with another one, so that the records about the transaction are missing."""
    folder = corpus.load("cluster-4.3.0").copy(tmp_path / "n1", "nodes/n1")
    own, other = folder / "__transaction_state-1", folder / "__transaction_state-0"
    for path in own.iterdir():
        path.unlink()
    for path in other.iterdir():
        (own / path.name).write_bytes(path.read_bytes())
    rows = list(TransactionSearch([str(folder)], FILES).rows())
    assert [(row.topic, row.state, row.coordinator) for row in rows] == [
        ("__consumer_offsets", HANGING, "not known"),
        ("sensor.readings-multi", HANGING, "not known"),
    ]
    assert rows[1].command == "kops txn abort --topic sensor.readings-multi --partition 1 --start-offset 30"
    # Without a partition of the transaction log nobody can know it.
    for path in own.iterdir():
        path.unlink()
    own.rmdir()
    other.rename(folder / "__transaction_state-7")
    rows = list(TransactionSearch([str(folder)], FILES).rows())
    assert {row.state for row in rows} == {OPEN}
    assert "not here" in (rows[0].note or "")


def test_a_folder_that_its_coordinator_does_not_know() -> None:
    """Somebody has copied a partition into the directory under the name of another topic."""
    rows = list(TransactionSearch([str(corpus.load("broker-dir-4.3.0").root / "crash")], FILES).rows())
    assert [(row.topic, row.state) for row in rows] == [("clicks-kept", OPEN), ("user_events-ghost", HANGING)]


def test_of_replicas_the_one_that_reaches_furthest_is_read() -> None:
    chosen = open_topic([str(corpus.load("cluster-4.3.0").root / "nodes")], GROUP_TOPIC, FILES)
    assert [each.partition for each in chosen.partitions] == [0, 1, 2]
    assert len(chosen.left_out) == 6
