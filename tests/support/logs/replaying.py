"""Runs of `kops log replay` that end at a chosen request, as if its answer was lost. The tests use them on kops and on Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from kops.client.replay.sending import BatchSender
from kops.errors import ApiError
from tests.cli.conftest import Ran
from tests.support.logs.salvaged import Row, row_of

Kops = Callable[..., Ran]


def rows_of(kops: Kops, topic: str, bootstrap: str) -> dict[int, list[Row]]:
    """Return all records of a topic, by partition."""
    ran = kops("topic", "consume", topic, "--from-beginning", "--until-end", "--format", "jsonl", "-b", bootstrap)
    assert ran.code == 0, ran.err
    found: dict[int, list[Row]] = {}
    for line in ran.text.splitlines():
        document = json.loads(line)
        found.setdefault(document["partition"], []).append(row_of(document))
    return found


def stop_at(monkeypatch: pytest.MonkeyPatch, request: int) -> Callable[[], int]:
    """Lose the answer to this Produce request and end the run there. Return a function that returns the number of requests."""
    seen = 0
    send = BatchSender.send

    def losing(sender: BatchSender, batches: Mapping[Any, Any]) -> Mapping[Any, Any]:
        nonlocal seen
        answer = send(sender, batches)
        seen += 1
        if seen == request:
            raise ApiError("NETWORK_EXCEPTION", "the answer is lost")
        return answer

    monkeypatch.setattr(BatchSender, "send", losing)
    return lambda: seen


def replay_with_stops(kops: Kops, monkeypatch: pytest.MonkeyPatch, folder: Path, work: Path, bootstrap: str, *options: str) -> int:
    """Replay a directory. Return the number of runs.

    Every other run loses the answer to its second request, the others lose the answer to their first.
    """
    line = ["log", "replay", str(folder), "-b", bootstrap, "--state", str(work / "state"), "--rejected", str(work / "rejected"), *options]
    for number in range(1, 200):
        with monkeypatch.context() as patched:
            stop_at(patched, 1 + number % 2)
            ran = kops(*line, *(["--resume"] if number > 1 else []))
        if not ran.code & 8:
            assert ran.code in (0, 4), ran.err
            return number
        assert "To resume: kops log replay --resume" in ran.err
    raise AssertionError("it never ends")
