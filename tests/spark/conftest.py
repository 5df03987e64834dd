"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j import java_gateway, protocol
from py4j.clientserver import JavaClient

from tests.spark.scan_commands import Commands


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


@pytest.fixture
def commands(spark: Any, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Commands:
    """Commands that run in this process; `kops scan …` uses the tests' session and leaves it open."""
    from kops.cli.commands.scan.running import OnSpark
    from kops.spark.interrupt import _Run

    monkeypatch.setattr(OnSpark, "start", lambda *_, **__: lambda: spark)
    monkeypatch.setattr(_Run, "_stop", lambda _: None)
    return Commands(capsysbinary)
