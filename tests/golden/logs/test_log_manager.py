"""The live log manager on damaged directories of real Kafka: it ends as Kafka did, and leaves after a clean stop what Kafka left."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from kops.files import Files, OsFiles, OverlayFiles
from kops.forensics.forecast.metadata_log import check_voter, load_metadata_log, stray_rule
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.log_checkpoints import scala_map_order
from kops.storage.manager.live_log_dirs import LogDirsFailedError
from kops.storage.manager.log_manager import LogManager
from kops.storage.manager.settings import TopicConfigs
from kops.storage.scheduler import Scheduler
from kops.storage.start.log_dirs import METADATA_DIR, LogDirStart, StartRefusedError, check_meta_properties
from tests.support import corpus
from tests.support.broker_cases import broker_files

START_MS = 1_795_259_262_181
BROKER = {"log.index.size.max.bytes": "131072"}
CHECKPOINTS = ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint")
UNIQUE_ID = re.compile(r"\.[0-9a-f]{32}-")
# A leader first writes its new epoch, and the group coordinator writes to its topic. Neither is the log manager's work. Compacted topics
# are not compared either, because Kafka's cleaner ran meanwhile.
NOT_COMPARED = ("/leader-epoch-checkpoint", "__consumer_offsets-", METADATA_DIR)


def _modes() -> Iterator[tuple[str, str]]:
    for case_id in corpus.cases("broker-damage"):
        for mode in corpus.load(case_id).json["modes"]:
            yield case_id, mode


def _start(files: Files, log_dirs: list[str], *, node_id: int, now_ms: int, broker: dict[str, str]) -> LogManager:
    """Start as a broker does. Raises StartRefusedError if the broker would end."""
    metadata_dir = next((path for path in log_dirs if files.exists(f"{path}/{METADATA_DIR}")), log_dirs[0])
    starts = check_meta_properties(files, log_dirs, node_id=node_id, metadata_log_dir=metadata_dir)
    metadata = load_metadata_log(files, metadata_dir, now_ms=now_ms)
    own = next((start.meta.directory_id for start in starts if start.path == metadata_dir and start.meta is not None), None)
    check_voter(metadata, node_id, own)
    image = metadata.image
    manager = LogManager(
        files,
        starts,
        now_ms=lambda: now_ms,
        scheduler=Scheduler(lambda: now_ms),
        new_id=lambda: "0" * 32,
        topics=TopicConfigs((lambda topic: {}) if image is None else image.topic_config, broker),
    )
    if image is None:
        manager.startup(is_stray=lambda topic_id, topic, partition: "nothing is known of the cluster")
    else:
        manager.startup(is_stray=stray_rule(image, node_id))
    return manager


@pytest.mark.parametrize(("case_id", "mode"), list(_modes()))
def test_a_broker_on_damaged_files(case_id: str, mode: str) -> None:
    case = corpus.load(case_id)
    expected = case.json["modes"][mode]
    files, log_dirs = broker_files(case, mode)
    broker = {key: str(value) for key, value in case.json["config"].items()}
    start = partial(_start, files, log_dirs, node_id=case.json["nodeId"], now_ms=case.json["clockMs"], broker=broker)
    if expected["outcome"] == "does-not-start":
        with pytest.raises((StartRefusedError, LogDirsFailedError)):
            start()
        return
    manager = start()
    assert bool(manager.dirs.offline) == (expected["outcome"] == "started-log-dir-offline")
    for told in expected["seen"]["partitions"] if expected["seen"] else ():
        key = TopicPartition(told["topic"], told["partition"])
        log = manager.get_log(key)
        if log is None and told.get("error") is None:
            # The log belonged to another topic. The broker makes the partition anew, as a leader does.
            log = manager.get_or_create_log(key, topic_id=_topic_id(expected, key))
        if told.get("error") is None and told["records"]:
            assert log is not None
            assert (log.log_start_offset, log.log_end_offset) == (told["beginningOffset"], told["endOffset"])
    live = manager.dirs.live
    compacted = tuple(f"/{posixpath.basename(log.directory)}/" for log in manager.all_logs if log.config.compact)
    assert manager.shutdown(broker_epoch=8) == []
    _compare(files, str(case.root / "before"), expected["after"], live, (*NOT_COMPARED, *compacted))


def _topic_id(expected: dict[str, Any], key: TopicPartition) -> str:
    (topic_id,) = [topic["topicId"] for topic in expected["seen"]["topics"] if topic["name"] == key.topic]
    assert isinstance(topic_id, str)
    return topic_id


def _compare(files: Files, root: str, after: dict[str, Any], live: list[str], not_compared: tuple[str, ...]) -> None:
    for log_dir in live:
        name = posixpath.basename(log_dir)
        kafka = {UNIQUE_ID.sub(".id-", path): told for path, told in after.items() if path.startswith(name + "/")}
        mine = {UNIQUE_ID.sub(".id-", posixpath.relpath(path, root)): path for path in files.walk(log_dir)}
        for path in [*kafka, *mine]:
            if path.count("/") == 1 and not path.endswith((*CHECKPOINTS, ".kafka_cleanshutdown")):
                continue
            if any(part in path for part in not_compared):
                continue
            assert (path in kafka) == (path in mine), path
            if not path.endswith(".kafka_cleanshutdown"):
                assert hashlib.sha256(files.read_all(mine[path])).hexdigest() == kafka[path]["sha256"], path


def test_a_broker_that_was_killed() -> None:
    case = corpus.load("broker-dir-4.3.0")
    files = OverlayFiles(OsFiles(read_only=True))
    log_dirs = [str(case.root / "crash" / name) for name in ("disk1", "disk2")]
    manager = _start(files, log_dirs, node_id=1, now_ms=START_MS, broker=BROKER)
    assert [key.topic for key in manager.stray_logs] == ["user_events-ghost"]
    assert manager.shutdown(broker_epoch=8) == []
    after = {path.removeprefix("recovered/"): {"sha256": hashlib.sha256(case.read(path)).hexdigest()} for path in case.files("recovered")}
    _compare(files, str(case.root / "crash"), after, log_dirs, (*NOT_COMPARED, "orders-moving", *CHECKPOINTS))


@pytest.mark.parametrize("case_id", ["cluster-3.9.1", "cluster-4.3.0"])
@pytest.mark.parametrize("node", ["n1", "n2", "n3"])
def test_opening_and_closing_changes_no_log(case_id: str, node: str) -> None:
    case = corpus.load(case_id)
    files = OverlayFiles(OsFiles(read_only=True))
    log_dir = str(case.root / "nodes" / node)
    manager = LogManager(
        files, [LogDirStart(log_dir)], now_ms=lambda: START_MS, scheduler=Scheduler(lambda: START_MS), new_id=lambda: "0" * 32
    )
    manager.startup()
    assert len(manager.current_logs) >= 9
    assert manager.shutdown() == []
    changes = files.changes()
    at_the_top = {".kafka_cleanshutdown", ".lock", "replication-offset-checkpoint"}
    assert {posixpath.basename(path) for path in [*changes.created, *changes.changed]} <= {"leader-epoch-checkpoint", *at_the_top}
    assert all(path.endswith(".snapshot") for path in changes.removed)


@pytest.mark.parametrize("case_id", [*corpus.cases("cluster")[1:], "broker-dir-4.3.0"])
def test_checkpoints_stand_in_the_order_of_kafkas_map(case_id: str) -> None:
    case = corpus.load(case_id)
    paths = [path for path in case.files() if path.endswith("/recovery-point-offset-checkpoint")]
    assert paths
    for path in paths:
        partitions = list(read_offset_checkpoint(case.read(path)))
        assert scala_map_order(sorted(partitions)) == partitions, path
