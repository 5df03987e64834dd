"""Random damage of real partitions. A repair is clean and loses nothing, even when a broker loads the result. `recover` restores all intact
batches and no others. With another replica, `heal` restores every batch, and `diff` says what the damaged one lacks.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterator

import pytest

from kops.config.topic import TopicConfig
from kops.files import Files, MemoryFiles, OsFiles, OverlayFiles
from kops.forensics.heal.run import heal
from kops.forensics.plans.plan import PlannedFiles
from kops.forensics.recover.run import recover
from kops.forensics.repair.run import plan_repair
from kops.forensics.replicas.run import diff
from kops.records import Damage, read_batches, scan
from kops.storage.start.loader import load_partition
from tests.support import corpus
from tests.support.logs.twins.loading import apply_operations

SOME = 5
WHOLE = "/whole"
EPOCH = slice(12, 16)  # of a batch of version 2

Batches = set[tuple[int, int]]


def batches(files: Files, folder: str) -> Batches:
    """Return the last offset and checksum of every readable batch in the live logs."""
    found: Batches = set()
    for name in files.list(folder):
        if name.endswith(".log"):
            with files.open(posixpath.join(folder, name)) as log:
                found |= {(item.last_offset, item.crc) for item in scan(log) if not isinstance(item, Damage)}
    return found


def trials(case: corpus.Case) -> Iterator[tuple[int, str, OverlayFiles]]:
    """Yield the number, folder and damaged files of each trial. `WHOLE` has another replica."""
    (name,) = [path.name for path in (case.root / "base").iterdir()]
    folder = str(case.root / "base" / name)
    for number, trial in enumerate(case.lines("trials.jsonl")):
        files = OverlayFiles(OsFiles(read_only=True), now_ms=lambda: 1)
        apply_operations(files, folder, trial["ops"])
        whole = posixpath.join(WHOLE, name)
        for path in (WHOLE, whole):
            files.mkdir(path)
        for each in (case.root / "base" / name).iterdir():
            files.write_all(posixpath.join(whole, each.name), each.read_bytes())
        yield number, folder, files


def check_repair(case: corpus.Case, number: int, folder: str, files: OverlayFiles, clean: Batches) -> None:
    intact = batches(files, folder) & clean
    (plan,) = plan_repair([folder], files=files)
    assert plan.left == [], number
    planned = PlannedFiles(files, plan.steps)
    after = batches(planned, folder)
    assert intact <= after, number
    end = max((last for last, _ in after), default=-1) + 1
    for point, stopped in ((0, False), (end, False), (end, True)):
        loaded = OverlayFiles(planned)
        load_partition(
            loaded,
            folder,
            TopicConfig(),
            recovery_point=point,
            clean_shutdown=stopped,
            now_ms=case.json["clockMs"],
            producer_id_expiration_ms=2147483647,
        ).close()
        assert after <= batches(loaded, folder), (number, point, stopped)


def check_recover(number: int, folder: str, files: OverlayFiles, clean: Batches) -> None:
    out = MemoryFiles()
    report = recover([folder], "/out", files=files, out_files=out)
    got = batches(out, report.partitions[0].output) if report.partitions else set()
    here = batches(files, folder)
    assert here & clean <= got, number
    # Nothing contradicts the wrong offset of a last batch, which no checksum covers. No other offset is wrong.
    assert got <= clean | here, number


def check_heal(number: int, folder: str, files: OverlayFiles) -> None:
    """Check that all batches of the other replica come back from it, byte for byte, and that `diff` tells which ones are missing."""
    damaged = posixpath.dirname(folder)
    wanted = contents(files, posixpath.join(WHOLE, posixpath.basename(folder)))
    before = readable(files, folder)
    (found,) = diff([damaged, WHOLE], files=files).partitions
    ranges = [*found.replicas[0].missing, *((each.base_offset, each.last_offset) for each in found.findings)]
    told = {offset for first, last in ranges if first is not None and last is not None for offset in range(first, last + 1)}
    # A last batch with a wrong offset seems to be missing on the other side: only a replica contradicts it.
    assert {last for _, last in found.replicas[1].missing} <= {last for last, _ in before} - wanted.keys(), number
    report = heal([damaged], [WHOLE], files=files)
    got = contents(PlannedFiles(files, [step for plan in report.repair.plans for step in plan.steps]), folder)
    other_epochs = {each.last_offset for each in found.findings if each.code == "replica-epoch-differs"}
    for last, data in got.items():
        if last in other_epochs:  # No checksum covers the epoch. The later one counts.
            assert data[: EPOCH.start] + data[EPOCH.stop :] == wanted[last][: EPOCH.start] + wanted[last][EPOCH.stop :], number
        else:
            assert data == wanted.get(last), number
    # Retention may have deleted what is before the first segment, and replication copies what is after the last batch.
    # A batch without records may be gone by compaction, which is no difference.
    bare = {last for last, data in wanted.items() if all(not isinstance(one, Damage) and one.count == 0 for one in read_batches(data))}
    within = {last for last in wanted.keys() - bare if min(got, default=-1) < last < max(got, default=-1)}
    assert within <= got.keys(), number
    assert {last for last in within if (last, wanted[last]) not in before} <= told, number


def contents(files: Files, folder: str) -> dict[int, bytes]:
    """Return the bytes of every readable batch in the live logs by last offset, which each has for itself."""
    found = readable(files, folder)
    assert len(dict(found)) == len(found)
    return dict(found)


def readable(files: Files, folder: str) -> set[tuple[int, bytes]]:
    """Return the last offset and the bytes of every readable batch in the live logs."""
    found: set[tuple[int, bytes]] = set()
    for name in files.list(folder):
        if name.endswith(".log"):
            with files.open(posixpath.join(folder, name)) as log:
                found |= {(item.last_offset, bytes(item.data())) for item in scan(log) if not isinstance(item, Damage)}
    return found


def run(case_id: str, every: int) -> None:
    case = corpus.load(case_id)
    clean: Batches | None = None
    for number, folder, files in trials(case):
        if clean is None:
            clean = batches(OsFiles(read_only=True), folder)
        if number % every == 0:
            check_repair(case, number, folder, files, clean)
            check_recover(number, folder, files, clean)
        if number % (3 * every) == 0:
            check_heal(number, folder, files)


@pytest.mark.parametrize("case_id", corpus.cases("fuzz"))
def test_some_random_damage(case_id: str) -> None:
    run(case_id, 250 // SOME)


@pytest.mark.parametrize(("case_id", "number"), [("fuzz-0.10.2.2-codec-none", 35), ("fuzz-0.10.2.2-codec-none", 241)])
def test_trials_of_which_the_heal_was_wrong(case_id: str, number: int) -> None:
    folder, files = next((folder, files) for found, folder, files in trials(corpus.load(case_id)) if found == number)
    check_heal(number, folder, files)


@pytest.mark.slow
@pytest.mark.parametrize("case_id", corpus.cases("fuzz"))
def test_much_random_damage(case_id: str, seed_count: int | None) -> None:
    """Every third trial of the corpus. `--seeds N` runs at least N trials of each case."""
    run(case_id, 3 if seed_count is None else max(1, 250 // seed_count))
