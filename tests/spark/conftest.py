"""One Spark session for the tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from kops.spark import register, spark_session

    session = spark_session("local[2]", "tests", {"spark.sql.shuffle.partitions": "2"})
    register(session)
    yield session
    session.stop()
