"""Kafka's classes for the tests of coordinators."""

from __future__ import annotations

import pytest

from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import JavaCoordinators
from tests.support.kafka.twins.java_transactions import JavaTransactions


@pytest.fixture(scope="module")
def made(oracle: Oracle) -> JavaTransactions:
    """Provide Kafka's classes, and the means to make subclasses of them."""
    return JavaTransactions(JavaCoordinators(oracle))
