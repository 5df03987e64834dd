"""Spark's JVM and the oracle's in one process."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException

from tests.support.kafka.oracle import Oracle


def test_each_has_its_own_exceptions(spark: Any, oracle: Oracle) -> None:
    assert type(oracle.gateway) is JavaGateway
    with pytest.raises(Py4JJavaError) as caught:
        oracle.java_class("java.lang.Integer").parseInt("many")
    assert "NumberFormatException" in str(caught.value.java_exception.toString())
    with pytest.raises(AnalysisException):
        spark.sql("select * from nowhere").collect()
