"""`kops log meta verify` compared with Kafka's MetadataLoader on logs and snapshots of real nodes, and on copies with other records.

What the loader refuses, verify names. What the loader takes, verify finds no error in. The copies have correct CRCs, because a wrong one
ends Kafka's replay in any case.
"""

from __future__ import annotations

import random
import shutil
import struct
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from kops.files import OsFiles
from kops.forensics.findings.finding import Finding
from kops.forensics.metadata_log.replay import replay
from kops.forensics.metadata_log.source import MetadataSource, open_metadata
from kops.forensics.metadata_log.verify import verify_metadata
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.records import write_record
from kops.protocol.messages import AbortTransactionRecord, BeginTransactionRecord, EndTransactionRecord
from kops.records import Batch, read_batches
from kops.records.build import write_record as write_entry
from kops.records.crc import crc32c
from tests.support import corpus
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_metadata_loader import JavaMetadataLoader
from tests.support.requests.metadata_records import RecordSource

FILES: Final = OsFiles(read_only=True)
NOT_LOADED: Final = {"metadata-snapshot-differs", "metadata-partition-invalid"}
"""Errors that no loader looks for: the state is wrong, but it can be loaded."""
CLEAN: Final = (
    ("broker-damage-4.3.0-none", "clean"),
    ("broker-damage-4.3.0-none-dynamic", "clean"),
    ("broker-damage-4.3.0-none-snapshot", "clean"),
    ("cluster-3.9.1", "nodes/n1"),
    ("cluster-4.3.0", "nodes/n1"),
    ("cluster-4.3.0", "nodes/n100"),
)
Entry = tuple[int, int, bytes | None, bytes | None, list[tuple[str | bytes, bytes | None]]]
"""A record in a batch: offset delta, timestamp delta, key, value, headers."""


def source_of(folder: Path) -> MetadataSource:
    (found,) = (path for path in folder.rglob("__cluster_metadata-0") if path.is_dir())
    return open_metadata(str(found), FILES)


def errors(found: list[Finding]) -> list[Finding]:
    """Return the errors of loading."""
    return [each for each in found if each.severity == "error" and each.code not in NOT_LOADED]


def entries(batch: Batch) -> list[Entry]:
    return [(each.offset - batch.base_offset, 0, each.key, each.value, list(each.headers)) for each in batch.records()]


def rebuilt(data: bytes, batch: Batch, changed: list[Entry]) -> bytes:
    """Return a batch with other records, and a right CRC."""
    header = bytearray(data[batch.position : batch.position + 61])
    payload = b"".join(write_entry(*each) for each in changed)
    struct.pack_into(">i", header, 8, 49 + len(payload))
    struct.pack_into(">i", header, 57, len(changed))
    whole = bytes(header) + payload
    return whole[:17] + struct.pack(">I", crc32c(whole[21:])) + whole[21:]


class Change:
    """A random change of one batch of the newest snapshot, or of the log after it."""

    def __init__(self, source: MetadataSource, seed: int) -> None:
        self.rng = rng = random.Random(seed)
        newest = source.snapshots[-1:]
        start = newest[0].offset or 0 if newest else 0
        self.path = Path(rng.choice([each.path for each in (*newest, *source.logs)]))
        self.data = self.path.read_bytes()
        self.is_snapshot = self.path.suffix == ".checkpoint"
        self.batches = read_batches(self.data)
        usable = [each for each in self.batches if self.is_snapshot or each.base_offset >= start]
        self.batch = rng.choice(usable) if usable else None
        self.drawn = RecordSource(seed)
        self.drawn.delta = MetadataDelta(replay(source, FILES).image)

    def make(self) -> str:
        """Change the file. Return what was changed."""
        batch, rng = self.batch, self.rng
        if batch is None:
            return "nothing"
        if rng.random() < 0.08 and self.is_snapshot:
            self._write(self.data[: batch.position] + self.data[batch.position + batch.size :])
            return "batch removed"
        changes = entries(batch)
        how: Callable[[list[Entry]], str] = rng.choice(
            [self._value, self._value, self._place, self._entry, self._frame, self._other, self._other]
        )
        told = how(changes)
        if not changes:
            return "nothing"
        made = rebuilt(self.data, batch, changes)
        self._write(self.data[: batch.position] + made + self.data[batch.position + batch.size :])
        return f"{'control ' if batch.is_control else ''}{told}"

    def _write(self, data: bytes) -> None:
        self.path.chmod(0o600)
        self.path.write_bytes(data)

    def _value(self, changes: list[Entry]) -> str:
        """Change bytes of a value."""
        rng = self.rng
        index = rng.randrange(len(changes))
        offset, time, key, value, headers = changes[index]
        value = value or b""
        choice = rng.randrange(5)
        if choice == 0:
            value = value[: rng.randrange(len(value) + 1)]
        elif choice == 1:
            value += rng.randbytes(rng.randrange(1, 4))
        elif value:
            at = rng.randrange(len(value))
            value = value[:at] + rng.randbytes(1) + value[at + 1 :]
        changes[index] = (offset, time, key, value, headers)
        return "value"

    def _entry(self, changes: list[Entry]) -> str:
        """Give a record what no record of this log has."""
        rng = self.rng
        index = rng.randrange(len(changes))
        offset, _, key, value, headers = changes[index]
        kinds: dict[str, Entry] = {
            "timestamp": (offset, rng.choice((1, -1, 1000)), key, value, headers),
            "key": (offset, 0, b"key" if key is None else None, value, headers),
            "empty key": (offset, 0, b"", value, headers),
            "null": (offset, 0, key, None, headers),
            "empty": (offset, 0, key, b"", headers),
            "headers": (offset, 0, key, value, [("a", b"b")]),
        }
        name = rng.choice(sorted(kinds))
        changes[index] = kinds[name]
        return name

    def _place(self, changes: list[Entry]) -> str:
        """Swap values, or repeat one."""
        rng = self.rng
        first, second = rng.randrange(len(changes)), rng.randrange(len(changes))
        one, other = changes[first], changes[second]
        changes[first] = (*one[:2], other[2], other[3], one[4])
        if rng.random() < 0.5:
            changes[second] = (*other[:2], one[2], one[3], other[4])
        return "place"

    def _frame(self, changes: list[Entry]) -> str:
        """Change the frame version, type or version of a value, or the type of a control record."""
        rng = self.rng
        index = rng.randrange(len(changes))
        offset, time, key, value, headers = changes[index]
        raw = bytearray(key if self.batch is not None and self.batch.is_control and key else value or b"")
        if raw:
            raw[rng.randrange(min(4, len(raw)))] = rng.choice((0, 1, 2, 3, 9, 99, 127))
        if self.batch is not None and self.batch.is_control and key:
            changes[index] = (offset, time, bytes(raw), value, headers)
        else:
            changes[index] = (offset, time, key, bytes(raw), headers)
        return "frame"

    def _other(self, changes: list[Entry]) -> str:
        """Replace a record by another one, which may fit or not, or by the end of a transaction."""
        rng = self.rng
        index = rng.randrange(len(changes))
        frames = (BeginTransactionRecord(), EndTransactionRecord(), AbortTransactionRecord())
        message = rng.choice(frames) if rng.random() < 0.15 else self.drawn.draw()
        offset, time, key, _, headers = changes[index]
        changes[index] = (offset, time, key, write_record(message, max(message.VERSIONS)), headers)
        return type(message).__name__


@pytest.fixture(scope="module")
def theirs(oracle: Oracle) -> JavaMetadataLoader:
    return JavaMetadataLoader(oracle)


def compare(source: MetadataSource, theirs: JavaMetadataLoader) -> tuple[list[str], list[Finding]]:
    """Return the refusals of Kafka and the errors of kops."""
    return theirs.refusals(source), errors(verify_metadata(source, FILES))


@pytest.mark.slow
@pytest.mark.parametrize(("case_id", "part"), CLEAN)
def test_what_kafka_wrote(theirs: JavaMetadataLoader, case_id: str, part: str) -> None:
    assert compare(source_of(corpus.load(case_id).root / part), theirs) == ([], [])


@pytest.mark.slow
def test_damaged_files(theirs: JavaMetadataLoader) -> None:
    """What the loader refuses in the damaged directories of the corpus, verify names, too.

    It also names what a start mends before the loader reads, such as a torn end of the log.
    """
    refused = 0
    for case_id in corpus.cases("broker-damage"):
        folder = corpus.load(case_id).root / "before"
        if ("metadata-" in case_id or "snapshot" in case_id) and list(folder.rglob("__cluster_metadata-0")):
            given, found = compare(source_of(folder), theirs)
            assert found or not given, (case_id, given)
            refused += bool(given)
    assert refused > 10


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_other_records(theirs: JavaMetadataLoader, tmp_path: Path, seed_count: int | None) -> None:
    """Over random changes, both refuse the same copies. `--seeds 1000` takes two minutes."""
    seen: Counter[str] = Counter()
    wrong = []
    for seed in range(seed_count or 60):
        case_id, part = CLEAN[seed % len(CLEAN)]
        folder = corpus.load(case_id).copy(tmp_path / str(seed), part)
        change = Change(source_of(folder), seed)
        what = change.make()
        refused, found = compare(source_of(folder), theirs)
        shutil.rmtree(folder)
        seen["refused" if refused else "taken"] += 1
        if bool(refused) != bool(found):
            wrong.append((seed, change.path.name, what, refused[:2], [f"{each.code}: {each.detail}" for each in found[:2]]))
    assert wrong == []
    assert min(seen["refused"], seen["taken"]) > 5, seen
