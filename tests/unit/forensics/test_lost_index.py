"""A clean stop leaves the active segment's indexes, so a missing one is a warning. After a crash, an empty segment may have none."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from kops.config.topic import topic_config
from kops.files import OsFiles
from kops.forensics.forecast.run import ForecastOptions, forecast
from kops.forensics.index.check import check_indexes
from kops.forensics.index.rebuild import plan_rebuild
from kops.forensics.repair.run import plan_repair
from kops.forensics.verify.facts.facts import LEVELS
from kops.forensics.verify.run import verify
from kops.records import BatchBuilder
from kops.storage.segment_files.index_bytes import DEFAULT_INDEX_INTERVAL_BYTES
from tests.support import corpus
from tests.support.logs.twins import cleaning
from tests.support.logs.verifying import folder, problems

CASE = "damage-4.3.0-none"
MARKER = ".kafka_cleanshutdown"


@pytest.fixture
def log_dir(tmp_path: Path) -> Path:
    """Provide a log directory that Kafka left after a clean stop."""
    return Path(shutil.copytree(folder(CASE), tmp_path / "logs"))


def partition_of(log_dir: Path) -> Path:
    return log_dir / str(corpus.load(CASE).json["damagedDir"]).split("/")[-1]


def told(path: Path) -> list[list[tuple[str, str]]]:
    """Return the results of each tool: `verify` at every level, `index check`, and the steps of `index rebuild` and of `repair`."""
    found = [problems(verify([path], level).findings) for level in LEVELS]
    found.append(problems(check_indexes([path]).findings))
    steps = [plan_rebuild([path]).steps, [step for plan in plan_repair([path]) for step in plan.steps]]
    return found + [[(step.action, Path(step.path).name) for step in each] for each in steps]


@pytest.mark.parametrize(
    ("kind", "code", "action"), [("index", "index-missing", "rebuild-index"), ("timeindex", "time-index-missing", "rebuild-time-index")]
)
@pytest.mark.parametrize("whole", [True, False], ids=["log-dir", "partition"])
@pytest.mark.parametrize("clean", [True, False], ids=["clean-stop", "crash"])
def test_a_lost_index_of_the_active_segment(log_dir: Path, kind: str, code: str, action: str, whole: bool, clean: bool) -> None:
    partition = partition_of(log_dir)
    before = forecast(OsFiles(read_only=True), [str(log_dir)], ForecastOptions(now_ms=0)).to_json()
    lost = max(partition.glob(f"*.{kind}"))
    lost.unlink()
    assert forecast(OsFiles(read_only=True), [str(log_dir)], ForecastOptions(now_ms=0)).to_json() == before
    if not clean:
        (log_dir / MARKER).unlink()
    *found, rebuilt, repaired = told(log_dir if whole else partition)
    assert found == [[(code, lost.name)]] * len(found)
    assert (rebuilt, repaired) == ([("rebuild-index", lost.name)], [(action, lost.name)])


def test_an_empty_active_segment_has_indexes_only_after_a_clean_stop(log_dir: Path) -> None:
    """Retention has just deleted all segments when the crash comes: the new segment has had no append yet."""
    partition = partition_of(log_dir)
    end = max(int(path.stem) for path in partition.glob("*.snapshot"))
    (partition / f"{end:020d}.log").write_bytes(b"")
    missing = [("index-missing", f"{end:020d}.index"), ("time-index-missing", f"{end:020d}.timeindex")]
    assert told(log_dir)[0] == missing
    (log_dir / MARKER).unlink()
    assert told(log_dir) == [[]] * (len(LEVELS) + 3)
    (partition / f"{end + 1:020d}.log").write_bytes(b"")
    assert missing[0] in told(log_dir)[0]


def test_an_emptied_index_is_found_where_the_time_index_proves_it(log_dir: Path) -> None:
    """An index without entries may be right: one large batch gives no entry, and neither does a log within `index.interval.bytes`. So the
    size of the file proves nothing. The time index does: level full compares the two.
    """
    emptied = max(partition_of(log_dir).glob("*.index"))
    emptied.write_bytes(b"")
    assert [problems(verify([log_dir], level).findings) for level in LEVELS] == [[], [], [], [("index-incomplete", emptied.name)]]


def test_an_index_without_entries_is_no_problem(tmp_path: Path) -> None:
    """A clean stop leaves such an index for one batch that is larger than `index.interval.bytes`."""
    directory = tmp_path / "orders-0"
    directory.mkdir()
    builder = BatchBuilder()
    builder.append(cleaning.NOW_MS, b"key", random.Random(1).randbytes(3 * DEFAULT_INDEX_INTERVAL_BYTES))
    log = cleaning.open_log(str(directory), config=topic_config({}))
    log.append_as_leader(builder.build(), 0)
    log.close()
    (index,) = directory.glob("*.index")
    assert index.stat().st_size == 0
    assert [problems(verify([directory], level).findings) for level in LEVELS] == [[]] * len(LEVELS)
