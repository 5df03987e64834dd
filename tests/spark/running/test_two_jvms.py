"""Spark's JVM and that of the oracle, with both of its doors, in one process."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException
from pyspark.errors.exceptions import captured

from tests.support.kafka.both.pinned import PinnedJvm
from tests.support.kafka.oracle import Oracle


@pytest.mark.slow
def test_spark_does_not_see_the_exceptions_of_the_oracle(spark: Any, oracle: Oracle, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark would look for them in its own JVM, where their numbers belong to other objects. Streams create further session objects."""
    spark.newSession()

    def asked(_: Any) -> None:
        raise AssertionError("Spark was asked")

    with monkeypatch.context() as patched:
        patched.setattr(captured, "convert_exception", asked)
        for integer in (oracle.java_class("java.lang.Integer"), PinnedJvm(oracle).named("java.lang.Integer")):
            with pytest.raises(Py4JJavaError) as caught:
                integer.parseInt("many")
            assert "NumberFormatException" in str(caught.value.java_exception.toString())
    with pytest.raises(AnalysisException):
        spark.sql("select * from nowhere").collect()
