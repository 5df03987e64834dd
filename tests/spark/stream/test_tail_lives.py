"""A stream compared with a reference: Kafka's consumer on Kafka's own logs, and a log of kops that goes through random steps."""

from __future__ import annotations

import base64
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kops.spark.source.ranges import DataLossError
from kops.storage.formats.checkpoints import TopicPartition, write_offset_checkpoint
from tests.spark.stream.tailing import LiveLog, Query, damages, offsets
from tests.support import corpus

TRANSACTIONS = [case_id for case_id in corpus.cases("format") if "transactions" in case_id]
LIMITS = [{}, {"maxOffsetsPerTrigger": "7"}, {"maxBytesPerTrigger": "1500"}, {"taskBytes": "2000"}]


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("number", [0, *(pytest.param(each, marks=pytest.mark.slow) for each in range(1, len(TRANSACTIONS)))])
def test_the_records_of_kafkas_consumer(tmp_path: Path, number: int, isolation: str) -> None:
    """Apache Kafka wrote the logs, with transactions that were committed, aborted and left open."""
    case = corpus.load(sorted(TRANSACTIONS, reverse=True)[number])
    log_dir = Path(shutil.copytree(case.root / "data", tmp_path / "data"))
    marks = {TopicPartition(each["topic"], each["partition"]): each["end"] for each in _ends(case)}
    (log_dir / "replication-offset-checkpoint").write_bytes(write_offset_checkpoint(marks))
    expected = [
        (each["topic"], each["partition"], row["offset"], row["value"])
        for each in _ends(case)
        for row in case.lines(f"truth/records/{each['topic']}-{each['partition']}.{isolation}.jsonl")
    ]
    assert expected
    for limits in LIMITS:
        rows = Query(log_dir, isolation=isolation, **limits).drain()
        assert damages(rows) == []
        assert sorted((row["topic"], row["partition"], row["offset"], _text(row["value"])) for row in rows) == sorted(expected)


def _ends(case: Any) -> list[dict[str, Any]]:
    """Return the partitions of a case, with their log ends as Kafka's consumer found them."""
    found = []
    for path in case.files("truth/records"):
        if path.endswith("read_uncommitted.meta.json"):
            (meta,) = case.lines(path)
            found.append({"topic": meta["topic"], "partition": meta["partition"], "end": meta["endOffset"]})
    return found


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def test_an_unclean_leader_of_apache_kafkas(tmp_path: Path) -> None:
    """Broker 2 led in epoch 1 and died. Broker 3 was elected without its last records, and wrote others."""
    diverged = corpus.load("cluster-4.3.0").root / "diverged"
    (tmp_path / "2").symlink_to(diverged / "broker-2")
    options = {"subscribe": "clicks-unclean", "failOnDataLoss": "false"}
    query = Query(tmp_path / "2", **options)
    assert offsets(query.drain())[-1] == 34
    query.options["path"] += f",{diverged / 'broker-3-live'}"
    query.restart()
    rows = query.drain()
    assert damages(rows) == [("data-loss", 20, 34)]
    assert offsets(rows) == list(range(20, 32))
    strict = Query(tmp_path / "2", subscribe="clicks-unclean")
    strict.drain()
    strict.options["path"] = query.options["path"]
    strict.restart()
    with pytest.raises(DataLossError, match="clicks-unclean-0: the log was cut at offset 20; offsets 20 to 34, which were read, are gone"):
        strict.batch()


class Life:
    """A log with random steps, and streams that read it between them."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.log = LiveLog(path)
        self.sequences: dict[int, int] = {}
        self.is_open: set[int] = set()
        self.number = 0
        self.truth: list[tuple[int, bytes, int | None]] = []
        self.aborted: set[int] = set()
        self.transactions: dict[int, list[int]] = {}
        limits = [self.chance.choice(LIMITS) for _ in range(2)]
        self.queries = {
            isolation: Query(path, isolation=isolation, **limit)
            for isolation, limit in zip(("read_uncommitted", "read_committed"), limits, strict=True)
        }

    def step(self) -> None:
        """Run one random step."""
        often, seldom = [self.append, self.transact, self.read], [self.finish, self.roll, self.keep]
        self.chance.choice([*often, *often, *seldom])()

    def append(self) -> None:
        self._write(None)

    def transact(self) -> None:
        self._write(self.chance.randrange(3))

    def _write(self, producer_id: int | None) -> None:
        self.number += 1
        value = b"%d" % self.number * self.chance.choice([1, 30])
        first = self.log.log.log_end_offset
        fields: dict[str, Any] = {}
        if producer_id is not None:
            sequence = self.sequences.get(producer_id, 0)
            self.sequences[producer_id] = sequence + 2
            fields = {"producer_id": producer_id, "sequence": sequence, "transactional": True}
            self.is_open.add(producer_id)
            self.transactions.setdefault(producer_id, []).extend((first, first + 1))
        self.log.append(value, is_kept=False, codec=self.chance.choice(["none", "gzip"]), **fields)
        self.truth += [(first, value, producer_id), (first + 1, value, producer_id)]

    def finish(self) -> None:
        for producer_id in sorted(self.is_open)[: self.chance.randrange(3)]:
            commits = self.chance.random() < 0.5
            self.is_open.discard(producer_id)
            done = self.transactions.pop(producer_id)
            self.aborted |= set() if commits else set(done)
            self.log.end(producer_id, commit=commits, is_kept=False)

    def roll(self) -> None:
        self.log.log.roll()

    def keep(self) -> None:
        self.log.keep(self.chance.randint(self.log.log.high_watermark, self.log.log.log_end_offset))

    def read(self) -> None:
        for isolation, query in self.queries.items():
            query.batch(commits=self.chance.random() < 0.7)
            seen = query.reader._seen[("orders", 0)][0].view
            marks = {"read_uncommitted": self.log.log.high_watermark, "read_committed": self.log.log.last_stable_offset}
            assert seen.bound == marks[isolation]
            if self.chance.random() < 0.3:
                query.restart()

    def check(self) -> None:
        """Check that all readable records have been read once."""
        for isolation, query in self.queries.items():
            query.drain()
            committed = isolation == "read_committed"
            end = self.log.log.last_stable_offset if committed else self.log.log.high_watermark
            expected = [(offset, value) for offset, value, _ in self.truth if offset < end and not (committed and offset in self.aborted)]
            assert [(row["offset"], bytes(row["value"])) for row in query.rows] == expected, isolation
            assert damages(query.rows) == []


@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(3, 23))])
def test_random_lives(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    for _ in range(60):
        life.step()
    life.check()
    life.log.keep()
    life.check()
