"""2,500 random damages of partition directories, each loaded once by Kafka 4.3's own loader. The loader of kops and its live log end in the
same state, byte for byte.
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

from kops.config.topic import TopicConfig
from tests.support import corpus
from tests.support.logs.twins import loading

CASES = corpus.cases("fuzz")


@functools.cache
def trials(case_id: str) -> list[dict[str, Any]]:
    """Return the trials of a case, without the one in which Kafka ran out of memory: that depends on the size of its heap."""
    found = corpus.load(case_id).lines("trials.jsonl")
    return [trial for trial in found if trial["result"].get("class") != "java.lang.OutOfMemoryError"]


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("load", loading.LOADS)
@pytest.mark.parametrize("case_id", CASES)
def test_every_trial_ends_as_in_kafka(case_id: str, load: loading.Load, every: int) -> None:
    """The fast ring loads every sixth trial, starting at a different one for each case."""
    case = corpus.load(case_id)
    base = str(case.root / "base" / case.json["base"])
    config = TopicConfig(index_interval_bytes=case.json["config"]["index.interval.bytes"])
    assert len(trials(case_id)) >= 249
    for number, trial in list(enumerate(trials(case_id)))[len(case_id) % every :: every]:
        files = loading.overlay()
        loading.apply_operations(files, base, trial["ops"])
        outcome = loading.load_and_close(
            files,
            base,
            config,
            load=load,
            clean_shutdown=trial["cleanShutdown"],
            recovery_point=trial["recoveryPoint"],
            now_ms=case.json["clockMs"],
            producer_id_expiration_ms=case.json["config"]["producer.id.expiration.ms"],
        )
        where = f"trial {number} of {case_id}: {trial['ops']}"
        expected = trial["result"]
        assert outcome.result() == {key: expected[key] for key in outcome.result()}, where
        assert outcome.removed == sorted(trial["removed"]), where
        assert outcome.changed == trial["changed"], where
        if outcome.error is not None:
            assert outcome.error.kind == kind_of(expected["class"]), where


def kind_of(java_class: str) -> str:
    """Return the kind of result to which LogManager turns an exception."""
    return "log-dir-offline" if java_class.endswith((".KafkaStorageException", ".IOException")) else "broker-does-not-start"


def test_the_trials_are_of_all_kinds() -> None:
    """The comparison above would prove little if all trials had the same outcome."""
    results = [trial["result"] for case_id in CASES for trial in trials(case_id)]
    assert sum(1 for result in results if not result["ok"]) > 100
    assert len({result.get("class") for result in results}) >= 6
