"""Loading a partition's directory with any contents ends with a log or a `LoadError`. A loaded log can be closed and loaded again."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kops.config.topic import topic_config
from kops.files import OverlayFiles
from kops.storage.failures.load_errors import LoadError
from kops.storage.start.loader import load_partition
from tests.support import corpus
from tests.support.logs.damage import Trial, damage
from tests.support.logs.twins import loading

CASES = ("v0-0.9.0.1-codec-snappy", "v1-0.10.2.2-codec-gzip", "v2-2.8.2-mixed-v0-v1-v2", "v2-4.3.0-transactions", "v2-4.3.0-idempotent")
NOW_MS = 1_800_000_000_000


def run(source: Path, tmp_path: Path, seeds: range) -> tuple[int, int]:
    """Load damaged copies of a directory. Return the number of loaded and of rejected ones."""
    loaded = refused = 0
    for seed in seeds:
        directory = tmp_path / str(seed) / source.name
        shutil.copytree(source, directory, copy_function=corpus.copy_writable)
        trial = damage(directory, random.Random(seed), 100)
        try:
            load_twice(str(directory), trial)
            loaded += 1
        except LoadError as error:
            assert error.exception.count(".") >= 2
            assert error.kind in ("log-dir-offline", "broker-does-not-start")
            refused += 1
        shutil.rmtree(directory)
    return loaded, refused


def load_twice(directory: str, trial: Trial) -> None:
    files = loading.overlay()
    settings = {name: str(value) for name, value in trial.config.items() if name != "producer.id.expiration.ms"}
    end = None
    for clean in (trial.clean, True):
        log = load_partition(
            files,
            directory,
            topic_config(settings),
            log_start_offset=trial.log_start_offset,
            recovery_point=trial.recovery_point,
            clean_shutdown=clean,
            now_ms=NOW_MS,
        )
        assert end in (None, log.log_end_offset)
        end = log.log_end_offset
        log.close()
    assert isinstance(files, OverlayFiles)


def source_of(case_id: str) -> Path:
    return next(path.parent for path in sorted((corpus.load(case_id).root / "data").rglob("*.log")))


@pytest.mark.parametrize("case_id", CASES)
def test_damaged_directories(case_id: str, tmp_path: Path) -> None:
    loaded, refused = run(source_of(case_id), tmp_path, range(100))
    assert loaded > 40
    assert refused > 5


@pytest.mark.slow
@pytest.mark.parametrize("case_id", CASES)
def test_many_damaged_directories(case_id: str, tmp_path: Path, seed_count: int | None) -> None:
    loaded, refused = run(source_of(case_id), tmp_path, range(100, 100 + (seed_count or 300)))
    assert loaded > 90
    assert refused > 15
