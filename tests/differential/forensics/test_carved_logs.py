"""Apache Kafka 4.3.0 loads the logs that `kops log carve` and `undelete` make, after a clean stop and after a crash. Its tool finds no
fault.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kops.forensics.carve.run import carve
from kops.forensics.leftovers.undelete import undelete
from tests.support import corpus
from tests.support.images import shuffled_image, some_log
from tests.support.kafka.oracle import Oracle

pytestmark = pytest.mark.slow


def segments() -> list[bytes]:
    """Return some segments of real brokers, of each format, some of them with producers."""
    found: dict[bytes, None] = {}
    for family in ("v0", "v1", "v2"):
        for case in list(corpus.cases(family))[:4]:
            for path in sorted(corpus.load(case).root.rglob("*.log")):
                if 0 < path.stat().st_size < 1 << 20:
                    found[path.read_bytes()] = None
    return [*found, some_log(0, 50, producer=71), some_log(150, 50, producer=71, sequence=150)]


def test_kafka_loads_what_was_carved(oracle: Oracle, tmp_path: Path) -> None:
    image = shuffled_image(17, segments())
    report = carve([image.write(tmp_path / "image")], tmp_path / "out")
    assert len(report.logs) > 10
    for log in report.logs:
        for clean in (True, False):
            folder = tmp_path / f"clean-{clean}" / log.name
            shutil.copytree(log.output, folder)
            opened = oracle.load_log(folder, clean=clean)
            assert opened["ok"], opened
            assert opened["closeError"] is None
            assert opened["logEndOffset"] == (log.last_offset or 0) + 1, log.name
        for path in sorted(Path(log.output).glob("*.index")):
            assert "Mismatches" not in oracle.dump(["--files", str(path)])


def test_kafka_loads_what_was_undeleted(oracle: Oracle, tmp_path: Path) -> None:
    """A real broker's retention renamed these segments. The longer log is loaded from offset 0 on, after a stop and after a crash."""
    for clean in (True, False):
        log_dir = corpus.load("v2-4.3.0-retention").copy(tmp_path / f"clean-{clean}", "data")
        assert undelete([log_dir], apply=True).journals
        opened = oracle.load_log(log_dir / "payments-retention-0", clean=clean)
        assert opened["ok"], opened
        assert (opened["logStartOffset"], opened["closeError"]) == (0, None)
        assert opened["segments"] == 4
