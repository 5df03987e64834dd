"""What the executors of a session have: kops of the driver's version, machine code, packages. Asked once, before a scan.

A session on another machine's master asks as many tasks as run at a time, which is more than one executor as a rule, but not surely all.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kops._compiled import HOT_MODULES, status
from kops.errors import MissingDependencyError
from kops.spark.failures import plain_errors
from kops.spark.progress import stage
from kops.spark.shipping import archive

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CODECS: Final = {"lz4.block": "lz4", "zstandard": "zstd", "cramjam": "snappy"}
"""Modules that decompress batches, and the codecs that cannot be read without them."""
_ASKED: Final = 64


class Executor(NamedTuple):
    """An executor's answer: its host, the version of kops (None: there is none, `why`), whether hot modules are compiled, modules that are
    missing."""

    host: str
    version: str | None
    why: str
    is_compiled: bool
    missing: tuple[str, ...]


def ask_executors(spark: SparkSession) -> list[Executor]:
    """One answer a host, sorted. Raises KopsError if no executor answers at all."""
    number = min(max(int(spark.sparkContext.defaultParallelism), 1), _ASKED)
    context = spark.sparkContext
    with plain_errors(), stage(spark, "asks what the executors have"):
        answers = context.parallelize(range(number), number).mapPartitions(_question()).collect()
    return sorted({Executor(*each) for each in answers}, key=str)


def prepare_executors(spark: SparkSession, say: Callable[[str], None]) -> None:
    """Check what the executors have, and bring kops where it is missing. Raises KopsError if a scan can't run."""
    executors = ask_executors(spark)
    if any(each.version is None for each in executors):
        spark.sparkContext.addPyFile(str(archive()))
        executors = ask_executors(spark)
    check_executors(executors, say)


def check_executors(executors: Sequence[Executor], say: Callable[[str], None]) -> None:
    """Say once what makes a scan slower or incomplete. Raises MissingDependencyError if it can't run there."""
    ours = sys.modules["kops"].__version__
    for each in executors:
        if each.version is None:
            raise MissingDependencyError(f"the executor on {each.host} can't import kops ({each.why}): install it there")
        if each.version != ours:
            raise MissingDependencyError(
                f"the executor on {each.host} has kops {each.version}, the driver {ours}: install the same there, or none"
            )
    slow = sorted({each.host for each in executors if not each.is_compiled})
    if slow and all(status(name).state == "compiled" for name in HOT_MODULES):
        say(f"kops runs interpreted on {', '.join(slow)}, several times slower: the interpreter there is not that of the driver")
    lacking = {module: [each.host for each in executors if module in each.missing] for module in ("_crc32c", *CODECS)}
    for module, hosts in lacking.items():
        if hosts:
            package = module.partition(".")[0].removeprefix("_")
            means = "checksums are computed slowly" if module == "_crc32c" else f"batches of codec {CODECS[module]} can't be read there"
            say(f"no {package} on {', '.join(sorted(set(hosts)))}: {means}; pip install {package}")


def _question() -> Callable[[Iterable[int]], Iterator[tuple[Any, ...]]]:
    """Runs in a task. It is pickled by value, for there may be no kops to unpickle it with."""
    modules = tuple(CODECS)

    def ask(_: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        import importlib
        import socket
        import sys

        host = socket.gethostname()
        try:
            from kops._compiled import HOT_MODULES, status
            from kops.records.crc import crc32c_function, portable_crc32c
        except ImportError as error:
            yield host, None, str(error), False, ()
            return
        is_compiled = all(status(name).state == "compiled" for name in HOT_MODULES)
        missing = ["_crc32c"] if crc32c_function().__module__ == portable_crc32c.__module__ else []
        for name in modules:
            try:
                importlib.import_module(name)
            except ImportError:
                missing.append(name)
        yield host, sys.modules["kops"].__version__, "", is_compiled, tuple(missing)

    return ask
