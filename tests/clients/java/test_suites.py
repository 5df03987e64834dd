"""Kafka's own integration tests run against kops: for requests, tools and clients in 4.3.0, consumers in 4.0.0, Streams in 3.9.1."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.kafka.suites.chosen import LEFT_OUT, SHORT_OLDER, SHORT_STREAMS, SHORT_TESTKIT
from tests.support.kafka.suites.suites import OLDER, STREAMS, TESTKIT, Suite, run_suite

pytestmark = [pytest.mark.slow, pytest.mark.java]
CHOSEN = [(TESTKIT, SHORT_TESTKIT), (OLDER, SHORT_OLDER), (STREAMS, SHORT_STREAMS)]


@pytest.mark.parametrize(("suite", "chosen"), CHOSEN, ids=["testkit", "older", "streams"])
def test_kafkas_own_tests(suite: Suite, chosen: tuple[str, ...], tmp_path: Path) -> None:
    """Every chosen class ran, and no test failed."""
    found = run_suite(suite, tmp_path / "run", chosen, left_out=LEFT_OUT)
    assert {outcome.name: outcome.text for outcome in found if outcome.status == "failed"} == {}
    passed = {outcome.name.partition("#")[0] for outcome in found if outcome.status == "passed"}
    assert passed == {name.partition("#")[0].rpartition(".")[2] for name in chosen}
