"""Every damage case in every mode: the loader, and the live log, leave the partition as the real broker did.

The real run continues after loading. So before the comparison our side does the same: the partition gets a leader (one more leader epoch),
a consumer reads every segment (which opens their indexes), and the broker stops cleanly. A 2.8.2 broker loaded the cases of 2.8.2. It
writes producers into a snapshot in another order, and completes a swap in another way (KAFKA-14190 and before). tests/differential compares
the 4.3 loader on the same directories.
"""

from __future__ import annotations

import posixpath
from pathlib import Path
from typing import Any

import pytest

from kops.config.topic import TopicConfig
from kops.files import OverlayFiles
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.formats.leader_epoch_checkpoint import read_leader_epoch_checkpoint, write_leader_epoch_checkpoint
from kops.storage.formats.producer_snapshot import read_producer_snapshot
from kops.storage.segments.epoch_cache import FILE_NAME as EPOCHS
from kops.storage.start.loaded_log import LoadedLog
from kops.storage.start.loader import load_partition
from kops.storage.unified_log import UnifiedLog
from tests.support import corpus
from tests.support.logs.twins import loading

MODES = ("full", "left", "clean")
LOADED = ("loaded", "loaded-consumer-error")
SWAPS = ("damage-2.8.2-leftover-swap", "damage-2.8.2-leftover-swap-log-only")


class Run:
    """One case in one mode, loaded on an overlay."""

    def __init__(self, case_id: str, mode: str, load: loading.Load = load_partition) -> None:
        self.case = corpus.load(case_id)
        self.mode: dict[str, Any] = self.case.json["modes"][mode]
        self.directory = str(self.case.root / self.case.json["damagedDir"])
        self.name = posixpath.basename(self.directory)
        self.after = self.case.root / "after" / mode
        self.files: OverlayFiles = loading.overlay()
        self._remove_what_tools_left()
        self.log: LoadedLog | UnifiedLog | None = None
        self.error: LoadError | None = None
        try:
            self.log = load(
                self.files,
                self.directory,
                TopicConfig(index_interval_bytes=self.case.json["config"]["index.interval.bytes"]),
                recovery_point=0 if mode == "full" else self._recovery_point(),
                clean_shutdown=mode == "clean",
                now_ms=self.case.json["clockMs"],
                producer_id_expiration_ms=2**31 - 1,
            )
        except LoadError as error:
            self.error = error

    def _remove_what_tools_left(self) -> None:
        """Remove indexes that the dump tool created. It did so in two of the stored folders, after the broker's run; case.json has the
        right list.
        """
        known = self.case.json["before"]
        for name in self.files.list(self.directory):
            if f"{self.name}/{name}" not in known:
                self.files.unlink(posixpath.join(self.directory, name))

    def _recovery_point(self) -> int:
        data = self.case.read("before/recovery-point-offset-checkpoint")
        topic, _, partition = self.name.rpartition("-")
        return read_offset_checkpoint(data).get(TopicPartition(topic, int(partition)), 0)

    def finish(self) -> loading.Listing:
        """Take a leader, read every index and stop cleanly. Return what is in the folder then. A stray log gets no leader and is not
        closed.
        """
        assert self.log is not None
        if self.is_stray:
            self.log.close_handlers()
            return loading.listing(self.files, self.directory)
        for segment in self.log.segments:
            assert segment.offset_index.length >= 0
        expected = self.expected_files()
        if EPOCHS in expected:
            latest = read_leader_epoch_checkpoint(self.expected_bytes(EPOCHS))[-1]
            self.log.epochs.assign(latest.epoch, latest.start_offset)
        self.log.close()
        return loading.listing(self.files, self.directory)

    @property
    def is_stray(self) -> bool:
        return any(path.endswith("-stray") for path in self._folders())

    def _folders(self) -> set[str]:
        return {path.partition("/")[0] for path in self.mode["after"]}

    def folder(self) -> str:
        """Return the partition's folder after the run. A stray one was renamed, and a new one made in its place."""
        return next((name for name in self._folders() if name.endswith("-stray")), self.name)

    def expected_files(self) -> loading.Listing:
        """Return the files without a temporary one. A task of the broker left it when its folder was renamed."""
        folder = self.folder() + "/"
        return {
            path.removeprefix(folder): [entry["size"], entry["sha256"]]
            for path, entry in self.mode["after"].items()
            if path.startswith(folder) and not path.endswith(".tmp")
        }

    def expected_bytes(self, name: str) -> bytes:
        """Return a file after the run. A file that did not change is stored only with the damaged folder."""
        changed = self.after / self.folder() / name
        return (changed if changed.exists() else Path(self.directory) / name).read_bytes()


def cases() -> list[Any]:
    return [pytest.param(case_id, mode, id=f"{case_id}-{mode}") for case_id in corpus.cases("damage") for mode in MODES]


@pytest.mark.parametrize("load", loading.LOADS)
@pytest.mark.parametrize(("case_id", "mode"), cases())
def test_the_log_ends_as_the_broker_left_it(case_id: str, mode: str, load: loading.Load) -> None:
    run = Run(case_id, mode, load)
    if run.mode["outcome"] not in LOADED:
        assert run.error is not None
        assert run.error.kind == run.mode["outcome"]
        told = (run.error.exception, run.error.reason.partition("/")[0])
        assert any(text in line for line in run.mode["log"] for text in told), run.error
        return
    assert run.error is None
    assert run.log is not None
    if not run.is_stray:
        consumer = run.mode["consumer"]
        assert (run.log.log_start_offset, run.log.log_end_offset) == (consumer["beginningOffset"], consumer["endOffset"])
    found = run.finish()
    expected = run.expected_files()
    if case_id in SWAPS:
        found, expected = _logs(found), _logs(expected)
    assert sorted(found) == sorted(expected)
    for name in expected:
        if found[name] != expected[name]:
            assert case_id.startswith("damage-2.8.2-"), name
            assert name.endswith(".snapshot"), name
            _assert_same_producers(run, name)


def _logs(files: loading.Listing) -> loading.Listing:
    return {name: value for name, value in files.items() if name.endswith(".log")}


def _assert_same_producers(run: Run, name: str) -> None:
    found = read_producer_snapshot(run.files.read_all(posixpath.join(run.directory, name)))
    expected = read_producer_snapshot(run.expected_bytes(name))
    assert sorted(found, key=lambda entry: entry.producer_id) == sorted(expected, key=lambda entry: entry.producer_id)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_is_written_to_the_directory_itself(mode: str) -> None:
    run = Run("damage-4.3.0-torn-tail", mode)
    names = [name for name in run.case.json["before"] if name.startswith(run.name + "/")]
    before = {name: [entry["size"], entry["sha256"]] for name, entry in run.case.json["before"].items()}
    run.finish()
    untouched = loading.overlay()
    found = loading.listing(untouched, run.directory)
    assert found == {name.removeprefix(run.name + "/"): before[name] for name in names}


def test_what_was_done_is_told() -> None:
    """The result lists which segments were given up, cut and recovered, and what was lost."""
    run = Run("damage-4.3.0-flip-body-old", "full")
    assert isinstance(run.log, LoadedLog)
    kinds = [action.kind for action in run.log.actions]
    cut = next(action for action in run.log.actions if action.kind == "segment-truncated")
    assert kinds.count("segment-removed") == len([name for name in run.expected_files() if name.endswith(".log.deleted")])
    assert cut.offset == run.log.log_end_offset
    assert cut.old_size is not None
    assert cut.new_size is not None
    assert cut.old_size > cut.new_size
    assert "crc" in cut.reason


def test_a_clean_stop_is_believed() -> None:
    """If the clean-stop marker exists, nothing is recovered, whatever the files contain."""
    run = Run("damage-4.3.0-flip-body-old", "clean")
    assert isinstance(run.log, LoadedLog)
    assert run.log.actions == []


def test_baseline_needs_no_change() -> None:
    run = Run("damage-4.3.0-none", "clean")
    assert isinstance(run.log, LoadedLog)
    assert run.log.actions == []
    run.log.close()
    assert write_leader_epoch_checkpoint(run.log.epochs.entries) == run.files.read_all(posixpath.join(run.directory, EPOCHS))
