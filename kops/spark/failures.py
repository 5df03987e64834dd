"""Failures of Spark's tasks, in the words of what went wrong there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kops.errors import KopsError


@contextmanager
def plain_errors() -> Iterator[None]:
    """Raise a task's failure as KopsError with the text of its exception, without the traces of Spark and Java."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        text = str(error)
        found = [line.strip() for line in text.splitlines() if line and not line[0].isspace() and "Error" in line.partition(":")[0]]
        raise KopsError(f"a Spark task failed: {found[-1] if found else text.strip().partition(chr(10))[0]}") from error
