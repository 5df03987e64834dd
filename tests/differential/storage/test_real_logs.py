"""Logs of Kafka's own UnifiedLog: healthy ones are clean, and their rebuilt indexes are the same. Damaged ones are found, loaded and
repaired so that Kafka accepts them.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kops.files import OsFiles
from kops.forensics.index.check import KINDS
from kops.forensics.index.rebuild import rebuild_partition
from kops.forensics.inventory.tree import open_partition
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import repair
from kops.forensics.verify.run import verify
from kops.records import Batch, BytesSource, scan
from tests.differential.storage.test_loader import compare
from tests.support.logs.damage import append, damage, delete, drop_batch, epoch_text, flip_bit, overwrite, truncate
from tests.support.logs.real_logs import RealLog, write_log

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle

pytestmark = pytest.mark.slow
LOGS = range(1, 31)
TRIALS = 4
FLIPS = 30
UNDER_CRC = 16
UNCOPIED = ("*.tmp", "*.deleted", "partition.metadata")  # the id of the topic is nowhere else
DAMAGES = (flip_bit, overwrite, truncate, append, delete, drop_batch, epoch_text)


@pytest.fixture(params=LOGS, scope="module")
def log(request: pytest.FixtureRequest, oracle: Oracle, tmp_path_factory: pytest.TempPathFactory) -> RealLog:
    """Provide a log that the tests do not change."""
    return write_log(oracle, tmp_path_factory.mktemp("disk") / f"shop{request.param}-4", request.param)


def batches(directory: Path) -> set[bytes]:
    paths = sorted(directory.glob("*.log"))
    return {bytes(item.data()) for path in paths for item in scan(BytesSource(path.read_bytes())) if isinstance(item, Batch)}


def copy(log: RealLog, target: Path) -> Path:
    return Path(shutil.copytree(log.directory, target / log.directory.name, ignore=shutil.ignore_patterns(*UNCOPIED)))


def test_a_healthy_log_is_clean_and_its_indexes_come_out_the_same(log: RealLog) -> None:
    for level in ("quick", "crc", "deep", "full"):
        report = verify([log.directory.parent], level=level)
        assert [found for found in report.findings if found.is_problem] == []
    if log.cleaned_to is not None:
        return
    interval = int(str(log.shape.config["index.interval.bytes"]))
    for rebuilt in rebuild_partition(open_partition(log.directory), OsFiles(read_only=True), interval):
        assert not [kind for kind in KINDS if rebuilt.differs(kind) and (kind == "txnindex" or not log.shape.follower)]


def test_every_bit_of_a_log_matters(log: RealLog) -> None:
    rng = random.Random(f"flips {log.directory.name}")
    paths = [path for path in sorted(log.directory.glob("*.log")) if path.stat().st_size]
    for _ in range(FLIPS if paths else 0):
        path = rng.choice(paths)
        data = path.read_bytes()
        batch = rng.choice([item for item in scan(BytesSource(data)) if isinstance(item, Batch)])
        place = rng.randrange(batch.size)
        level = "crc" if place >= UNDER_CRC else "full"
        wrong = bytearray(data)
        wrong[batch.position + place] ^= 1 << rng.randrange(8)
        path.write_bytes(bytes(wrong))
        found = verify([log.directory.parent], level=level).has_problems
        path.write_bytes(data)
        assert found or (12 <= place < 16 and log.cleaned_to is not None), f"{path.name}: byte {place} of the batch at {batch.position}"


def test_damaged_logs_load_alike(oracle: Oracle, log: RealLog, tmp_path: Path) -> None:
    for number in range(TRIALS):
        directory = copy(log, tmp_path / f"load{number}")
        trial = damage(directory, random.Random(f"load {log.directory.name} {number}"), log.next_offset)
        compare(oracle, directory, trial, f"{log.directory.name} {number}: {trial}")


def test_everything_intact_is_recovered_and_survives_a_repair(oracle: Oracle, log: RealLog, tmp_path: Path) -> None:
    clean = batches(log.directory)
    for number in range(TRIALS):
        rng = random.Random(f"repair {log.directory.name} {number}")
        directory = copy(log, tmp_path / f"damaged{number}")
        done = [f"{kind.__name__}: {kind(directory, rng)}" for kind in rng.choices(DAMAGES, k=rng.choice([1, 1, 2, 3]))]
        left = b"".join(path.read_bytes() for path in sorted(directory.glob("*.log")))
        intact = {batch for batch in clean if batch in left}
        recover([directory], tmp_path / f"out{number}")
        assert intact <= batches(tmp_path / f"out{number}" / directory.name), done
        repair([directory], mode="all")
        assert [found for found in verify([directory], level="full").findings if found.is_problem] == [], done
        kept = batches(directory)
        assert intact <= kept, done
        for mode, clean_stop in (("full", False), ("clean", True)):
            loaded = shutil.copytree(directory, tmp_path / f"{mode}{number}" / directory.name)
            result = oracle.load_log(loaded, clean=clean_stop, config=log.shape.config)
            assert result["ok"] and result["closeError"] is None, (mode, done, result)
            assert batches(loaded) == kept, (mode, done)
