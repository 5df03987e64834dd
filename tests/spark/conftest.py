"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j import java_gateway, protocol
from py4j.clientserver import JavaClient


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from kops.spark import register, spark_session

    session = spark_session("local[2]", "tests", {"spark.sql.shuffle.partitions": "2"})
    translated = java_gateway.get_return_value

    def get_return_value(answer: Any, client: Any, *names: Any) -> Any:
        """Spark has replaced this function for all of py4j. It may translate the exceptions of its own JVM, not those of the oracle's."""
        return (translated if isinstance(client, JavaClient) else protocol.get_return_value)(answer, client, *names)

    java_gateway.get_return_value = get_return_value
    register(session)
    yield session
    session.stop()
    java_gateway.get_return_value = protocol.get_return_value
