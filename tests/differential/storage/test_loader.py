"""Random damage, loaded by Kafka's own UnifiedLog and by kops's: same result, same offsets, and the same files byte for byte."""

from __future__ import annotations

import contextlib
import hashlib
import random
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from kops.config.topic import topic_config
from kops.files import OsFiles, OverlayFiles
from kops.storage.failures.load_errors import LoadError
from kops.storage.start.loader import load_partition
from tests.support import corpus
from tests.support.logs import synthetic
from tests.support.logs.damage import Trial, damage
from tests.support.logs.twins import loading

if TYPE_CHECKING:
    from tests.support.kafka.oracle import Oracle

BASES = (
    "v0-0.9.0.1-codec-gzip",
    "v0-0.9.0.1-compacted",
    "v1-0.10.2.2-codec-lz4",
    "v1-0.10.2.2-codec-none",
    "v1-0.10.2.2-format-0.9.0-lz4",
    "v2-2.8.2-mixed-v0-v1-v2",
    "v2-2.8.2-transactions",
    "v2-3.9.1-deleterecords",
    "v2-4.3.0-codec-snappy",
    "v2-4.3.0-compacted-idempotent",
    "v2-4.3.0-idempotent",
    "v2-4.3.0-retention",
    "v2-4.3.0-timestamps-out-of-order",
    "v2-4.3.0-transactions",
    "v2-4.3.0-transactions-b",
)
TRIALS = 25
SETTLE_S = 60
SWAP_CASES = ("damage-2.8.2-leftover-swap", "damage-2.8.2-leftover-swap-log-only")


def partition_of(case: corpus.Case) -> Path:
    """Return the partition folder with the most segments in a case's data."""
    folders = {path.parent for path in case.root.joinpath("data").rglob("*.log")}
    return max(sorted(folders), key=lambda folder: len(list(folder.glob("*.log"))))


def listing_of(directory: Path) -> loading.Listing:
    """Return the files of a directory. A temporary file of Kafka's other thread may disappear meanwhile."""
    found: loading.Listing = {}
    for path in sorted(directory.iterdir()):
        with contextlib.suppress(FileNotFoundError):
            if path.is_file():
                data = path.read_bytes()
                found[path.name] = [len(data), hashlib.sha256(data).hexdigest()]
    return found


def load_ours(directory: Path, trial: Trial) -> tuple[dict[str, Any], loading.Listing, LoadError | None]:
    settings = {name: str(value) for name, value in trial.config.items()}
    expiration_ms = int(settings.pop("producer.id.expiration.ms", str(2**31 - 1)))
    files = OverlayFiles(OsFiles(read_only=True))
    outcome = loading.load_and_close(
        files,
        str(directory),
        topic_config(settings),
        clean_shutdown=trial.clean,
        recovery_point=trial.recovery_point,
        log_start_offset=trial.log_start_offset,
        now_ms=int(time.time() * 1000),
        producer_id_expiration_ms=expiration_ms,
    )
    return outcome.result(), loading.listing(files, str(directory)), outcome.error


def load_theirs(oracle: Oracle, directory: Path, trial: Trial) -> dict[str, Any]:
    result = oracle.load_log(
        directory,
        log_start_offset=trial.log_start_offset,
        recovery_point=trial.recovery_point,
        clean=trial.clean,
        config=trial.config,
    )
    keys = ("ok", "logStartOffset", "logEndOffset", "segments", "producers") if result["ok"] else ("ok", "class")
    return {key: result[key] for key in keys}


def compare(oracle: Oracle, directory: Path, trial: Trial, where: str) -> None:
    """Load with kops first, on an overlay, and then with Kafka on the directory itself."""
    found, files, error = load_ours(directory, trial)
    expected = load_theirs(oracle, directory, trial)
    assert found == expected, f"{where}: {error}"
    on_disk = listing_of(directory)
    deadline = time.monotonic() + SETTLE_S  # Kafka writes the epochs from another thread
    while files != on_disk and time.monotonic() < deadline:
        time.sleep(0.01)
        on_disk = listing_of(directory)
    assert files == on_disk, where


@pytest.mark.slow
@pytest.mark.parametrize("case_id", BASES)
def test_random_damage_loads_alike(oracle: Oracle, case_id: str, tmp_path: Path) -> None:
    source = partition_of(corpus.load(case_id))
    last = max(int(path.stem) for path in source.glob("*.log"))
    end = load_end_offset(source)
    assert end >= last
    for seed in range(TRIALS):
        directory = tmp_path / str(seed) / source.name
        shutil.copytree(source, directory, copy_function=corpus.copy_writable)
        rng = random.Random(f"{case_id} {seed}")
        trial = damage(directory, rng, end)
        compare(oracle, directory, trial, f"{case_id} seed {seed}: {trial}")
        shutil.rmtree(directory, ignore_errors=True)  # one of Kafka's tasks may still write there


@pytest.mark.slow
@pytest.mark.parametrize("shape", sorted(synthetic.SHAPES))
def test_built_partitions_load_alike(oracle: Oracle, shape: str, tmp_path: Path) -> None:
    """Partitions of shapes that the corpus lacks load alike: after a first load, with only logs, and damaged after that."""
    for seed in range(TRIALS):
        directory = tmp_path / str(seed) / f"{shape}-0"
        rng = random.Random(f"{shape} {seed}")
        if seed % 5 == 0:
            synthetic.write_partition(directory, shape, seed, loaded=False)
            trial = Trial(clean=False, config={"index.interval.bytes": rng.choice([0, 100, 4096])})
        else:
            end = synthetic.write_partition(directory, shape, seed // 5)
            trial = damage(directory, rng, end)
        compare(oracle, directory, trial, f"{shape} seed {seed}: {trial}")
        shutil.rmtree(directory, ignore_errors=True)


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["-delete", "-future", "-stray"])
def test_marked_directories_load_alike(oracle: Oracle, suffix: str, tmp_path: Path) -> None:
    source = partition_of(corpus.load("v2-4.3.0-transactions"))
    end = load_end_offset(source)
    for seed in range(TRIALS // 2):
        directory = tmp_path / str(seed) / f"{source.name}.{seed:032x}{suffix}"
        shutil.copytree(source, directory, copy_function=corpus.copy_writable)
        trial = damage(directory, random.Random(f"{suffix} {seed}"), end)
        compare(oracle, directory, trial, f"{suffix} seed {seed}: {trial}")


def load_end_offset(source: Path) -> int:
    files = loading.overlay()
    log = load_partition(files, str(source), topic_config({}), clean_shutdown=True, now_ms=0)
    return log.log_end_offset


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["full", "left", "clean"])
@pytest.mark.parametrize("case_id", [case for case in corpus.cases("damage") if case.startswith("damage-2.8.2-")])
def test_what_an_older_broker_loaded_loads_alike(oracle: Oracle, case_id: str, mode: str, tmp_path: Path) -> None:
    """A 2.8.2 broker loaded these damage cases when they were recorded. The 4.3 loader loads them here."""
    case = corpus.load(case_id)
    directory = tmp_path / Path(case.json["damagedDir"]).name
    case.copy(directory, case.json["damagedDir"])
    trial = Trial(clean=mode == "clean", recovery_point=0 if mode == "full" else 99)
    trial.config["index.interval.bytes"] = case.json["config"]["index.interval.bytes"]
    compare(oracle, directory, trial, case_id)
