"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from py4j import java_gateway, protocol
from pyspark import SparkContext
from pyspark.errors.exceptions import captured
from pyspark.sql import session as sql_session

from tests.spark.scan_commands import Commands
from tests.support.scheduling import is_fast


@pytest.fixture(scope="session")
def spark(pytestconfig: pytest.Config) -> Iterator[Any]:
    """Spark in this process. In the fast ring its JVM is the light one, which compiles less: most scans there take less time than that."""
    from kops.spark import register, spark_session

    original, spark_s = protocol.get_return_value, captured.install_exception_handler
    translated = captured.capture_sql_exception(original)

    def get_return_value(answer: Any, client: Any, *names: Any) -> Any:
        gateway = SparkContext._gateway
        is_spark_s = gateway is not None and client is gateway._gateway_client
        return (translated if is_spark_s else original)(answer, client, *names)

    def install() -> None:
        """Install this function in py4j.

        Spark replaces it for all of py4j, with each session object. The function may translate only the exceptions of Spark's own JVM.
        """
        java_gateway.get_return_value = get_return_value

    sql_session.install_exception_handler = install
    session = spark_session("local[2]", "tests", {"spark.sql.shuffle.partitions": "2"}, light=is_fast(pytestconfig))
    register(session)
    yield session
    session.stop()
    sql_session.install_exception_handler = spark_s
    java_gateway.get_return_value = original


@pytest.fixture
def commands(spark: Any, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Commands:
    """Provide commands that run in this process. `kops scan …` uses the tests' session and leaves it open."""
    from kops.cli.commands.scan.running import OnSpark
    from kops.spark.interrupt import _Run

    monkeypatch.setattr(OnSpark, "start", lambda *_, **__: lambda: spark)
    monkeypatch.setattr(_Run, "_stop", lambda _: None)
    return Commands(capsysbinary)
