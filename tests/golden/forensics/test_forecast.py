"""`forecast` against what real Kafka did with the same directories: every damage case in its three states, every broker-damage case."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator
from functools import cache
from typing import Any

import pytest

from kops.files import Files, MemoryFiles, OsFiles
from kops.forensics.forecast.run import Forecast, ForecastOptions, PartitionForecast, forecast
from tests.support import corpus
from tests.support.broker_cases import broker_files

MODES: dict[str, dict[str, Any]] = {
    "full": {"clean_shutdown": False, "recovery_point": 0},
    "left": {"clean_shutdown": False},
    "clean": {"clean_shutdown": True},
}

# The files do not show what was lost: the only trace of the old log start is the damaged checkpoint, or the metadata is gone.
UNKNOWABLE = ("log-start-beyond-end", "log-start-in-middle", "metadata-dir-missing")


def _modes(kind: str) -> Iterator[tuple[str, str]]:
    for case_id in corpus.cases(kind):
        for mode in corpus.load(case_id).json["modes"]:
            yield case_id, mode


def _options(case: corpus.Case, mode: str) -> ForecastOptions:
    config = {key: str(value) for key, value in case.json["config"].items()} if case.json["kind"] == "damage" else {}
    options = ForecastOptions(now_ms=case.json["clockMs"], overrides=config)
    if case.json["kind"] == "damage":
        for key, value in MODES[mode].items():
            setattr(options, key, value)
    return options


def _given_up(case: corpus.Case, mode: str) -> list[str]:
    """Return the segments of the damaged partition that existed before and are gone or renamed after."""
    prefix = case.json["damagedDir"].removeprefix("before/") + "/"
    after = case.json["modes"][mode]["after"]
    return sorted(
        posixpath.basename(path) for path in case.json["before"] if path.startswith(prefix) and path.endswith(".log") and path not in after
    )


def _one(answer: Forecast, case: corpus.Case) -> PartitionForecast:
    name = posixpath.basename(case.json["damagedDir"])
    return next(each for each in answer.partitions if posixpath.basename(each.dir) == name)


def _check(case: corpus.Case, mode: str, got: PartitionForecast) -> None:
    expected = case.json["modes"][mode]
    consumer = expected.get("consumer")
    if case.id.endswith("partition-metadata-missing"):
        # Kafka renames the folder to -stray and makes a new, empty log. All segments are given up; the new log uses the first one's name
        # again.
        assert got.outcome == "stray"
        assert got.segments_removed[1:] == _given_up(case, mode)
    else:
        assert got.outcome == expected["outcome"], got.reason
        assert sorted(got.segments_removed) == (_given_up(case, mode) if consumer else got.segments_removed)
    if consumer is None:
        return
    assert (got.log_start_offset, got.log_end_offset) == (consumer["beginningOffset"], consumer["endOffset"])
    assert [list(each) for each in got.lost_though_intact] == expected["lostThoughIntactOnDisk"]


@pytest.mark.parametrize(("case_id", "mode"), list(_modes("damage")))
def test_damaged_log_directory(case_id: str, mode: str) -> None:
    case = corpus.load(case_id)
    log_dir = str(case.root / "before")
    answer = forecast(OsFiles(read_only=True), [log_dir], _options(case, mode))
    _check(case, mode, _one(answer, case))
    outcome = case.json["modes"][mode]["outcome"]
    if outcome == "broker-does-not-start":
        assert answer.broker_outcome == "does-not-start"
    elif outcome == "log-dir-offline":
        # It is the broker's only log directory here, so the broker ends. In the run that made the case it had others.
        assert answer.log_dirs[0]["outcome"] == "log-dir-offline"
        assert answer.broker_outcome == "does-not-start"
    else:
        assert answer.broker_outcome == "started"


@pytest.mark.parametrize(("case_id", "mode"), list(_modes("damage")))
def test_damaged_partition_directory(case_id: str, mode: str) -> None:
    case = corpus.load(case_id)
    answer = forecast(OsFiles(read_only=True), [str(case.root / case.json["damagedDir"])], _options(case, mode))
    if not case.id.endswith("partition-metadata-missing"):  # the loader accepts it; only the broker calls it stray
        _check(case, mode, answer.partitions[0])
    assert answer.broker_outcome is None


@cache
def _trials(case_id: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = corpus.load(case_id).lines("trials.jsonl")
    return found


def _damaged(case: corpus.Case, ops: list[dict[str, Any]]) -> Files:
    """Return the base folder with the damage applied, in memory."""
    files = MemoryFiles()
    root = f"/log/{case.json['base']}"
    files.mkdir("/log")
    files.mkdir(root)
    for path in case.files("base"):
        files.write_all(f"{root}/{posixpath.basename(path)}", case.read(path))
    for op in ops:
        _apply(files, root, op)
    return files


def _apply(files: Files, root: str, op: dict[str, Any]) -> None:
    path = f"{root}/{op['file']}"
    data = files.read_all(path) if files.exists(path) else b""
    match op["op"]:
        case "flipBit" | "write":
            new = bytes.fromhex(op["new"])
            data = data[: op["position"]] + new + data[op["position"] + len(new) :]
        case "truncate":
            data = data[: op["newSize"]]
        case "append":
            data += bytes.fromhex(op["data"])
        case "cut":
            data = data[: op["position"]] + data[op["position"] + op["bytes"] :]
        case "delete":
            files.unlink(path)
            return
        case "create":
            data = files.read_all(f"{root}/{op['copyOf']}") if "copyOf" in op else op["new"].encode()
        case "rename":
            files.rename(path, f"{root}/{op['to']}")
            return
        case other:
            raise ValueError(other)
    files.write_all(path, data)


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case_id", corpus.cases("fuzz"))
def test_fuzzed_partition_directories(case_id: str, every: int) -> None:
    """The fast ring loads every sixth trial, starting at a different one for each case."""
    case = corpus.load(case_id)
    compared = 0
    chosen = list(enumerate(_trials(case_id)))[len(case_id) % every :: every]
    for number, trial in chosen:
        result = trial["result"]
        if "OutOfMemoryError" in str(result.get("class")):
            continue
        options = ForecastOptions(
            now_ms=case.json["clockMs"],
            clean_shutdown=trial["cleanShutdown"],
            recovery_point=trial["recoveryPoint"],
            log_start_offset=case.json.get("logStartOffset", 0),
            overrides={key: str(value) for key, value in case.json["config"].items()},
        )
        got = forecast(_damaged(case, trial["ops"]), [f"/log/{case.json['base']}"], options).partitions[0]
        where = f"trial {number}: {got.reason}"
        if result["ok"]:
            assert got.outcome in ("loaded", "loaded-consumer-error", "stray"), where
            assert (got.log_start_offset, got.log_end_offset) == (result["logStartOffset"], result["logEndOffset"]), where
            gone = sorted(name for name in trial["removed"] if name.endswith(".log"))
            assert sorted(got.segments_removed) == gone, where
        else:
            assert got.outcome in ("log-dir-offline", "broker-does-not-start"), where
        compared += 1
    assert compared >= len(chosen) - 1


@pytest.mark.parametrize(("case_id", "mode"), list(_modes("broker-damage")))
def test_damagedbroker_files(case_id: str, mode: str) -> None:
    case = corpus.load(case_id)
    expected = case.json["modes"][mode]
    files, log_dirs = broker_files(case, mode)
    options = ForecastOptions(now_ms=case.json["clockMs"], node_id=case.json["nodeId"])
    answer = forecast(files, log_dirs, options)
    assert answer.broker_outcome == expected["outcome"], answer.broker_reason
    if expected["seen"] is None:
        return
    for name, told in expected["seen"]["logDirs"].items():
        got = next(each for each in answer.log_dirs if each["dir"] == str(case.root / "before" / name))
        assert got["outcome"] == ("started" if told["error"] is None else "log-dir-offline"), got
    for told in expected["seen"]["partitions"]:
        _check_partition(answer, told, expected)
    if case.id.endswith(UNKNOWABLE):
        return
    names = {f"{each['topic']}-{each['partition']}" for each in case.json["cleanSeen"]["partitions"]}
    lost = {f"{each.topic}-{each.partition}": [list(pair) for pair in each.lost] for each in answer.partitions if each.lost}
    assert {name: ranges for name, ranges in lost.items() if name in names} == expected["lostOffsets"]


def _check_partition(answer: Forecast, told: dict[str, Any], expected: dict[str, Any]) -> None:
    found = [each for each in answer.partitions if (each.topic, each.partition) == (told["topic"], told["partition"])]
    served = [each for each in found if each.outcome == "loaded"]
    if told.get("error") is None and told["records"]:
        (got,) = served
        assert (got.log_start_offset, got.log_end_offset) == (told["beginningOffset"], told["endOffset"])
    elif told.get("error") is not None:
        assert not served, told
