"""Fixtures of the tests that run a program with Kafka's clients and with those of kops."""

from __future__ import annotations

import pytest

from tests.support.kafka.both.pinned import PinnedJvm
from tests.support.kafka.oracle import Oracle


@pytest.fixture(scope="session")
def pinned(oracle: Oracle) -> PinnedJvm:
    """Provide Kafka's clients with callbacks in Python."""
    return PinnedJvm(oracle)
