"""The options of `spark.read.format("kafkalog")` and `spark.readStream`. docs/spark.md has the same table; a test compares them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from kops.errors import UsageError
from kops.files.urls import absolute_path, plain_paths
from kops.forensics.dump.filters import parse_time
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.source.schemas import SCHEMAS, STATE_MODES

MODES: Final = tuple(SCHEMAS)
ALL: Final = "all"
FURTHEST: Final = "furthest"


class Option(NamedTuple):
    """An option: its allowed values, its default, and its meaning."""

    name: str
    values: str
    default: str
    meaning: str


_REPLICAS: Final = "furthest: of each partition the replica with the highest last leader epoch, then end offset"
OPTIONS: Final = (
    Option(
        "path",
        "paths with commas between them",
        "",
        "the argument of `load`: log directories, partition directories or files; `*`, `?` and `[…]` match",
    ),
    Option("mode", ", ".join(MODES), "records", "the kind of rows"),
    Option("taskBytes", "a number of bytes", str(TASK_BYTES), "the approximate size that one task reads"),
    Option("includeControl", "true, false", "false", "mode records: also control records"),
    Option("includeDeleted", "true, false", "false", "also leftover segments and directories, and those that a broker is about to delete"),
    Option(
        "replicas",
        "all, furthest",
        "all; furthest in modes groups, transactions and metadata",
        "furthest: of each partition the replica with the highest last leader epoch, then end offset",
    ),
    Option("at", "milliseconds since 1970, or an ISO time", "", "modes groups and transactions: the state at this time"),
    Option("subscribe", "topics with commas between them", "all topics", "stream: the topics to read"),
    Option("subscribePattern", "a regular expression", "", "stream: the topics to read, by their whole names"),
    Option("startingOffsets", "earliest, latest, or JSON", "latest", "stream: where a new query begins; -2 is earliest, -1 is latest"),
    Option(
        "maxOffsetsPerTrigger", "a number of offsets", "no limit", "stream: the approximate number of offsets that one micro-batch reads"
    ),
    Option(
        "maxBytesPerTrigger",
        "a number of bytes",
        "no limit",
        "stream: the approximate number of bytes of segments that one micro-batch reads",
    ),
    Option("failOnDataLoss", "true, false", "true", "stream: fail if records were lost; false: report the loss as a row of damage"),
    Option("bound", "high-watermark, log-end", "high-watermark", "stream: the end up to which a log is read"),
    Option(
        "isolation",
        "read_uncommitted, read_committed",
        "read_uncommitted",
        "stream: read_committed: no open or aborted transactions",
    ),
)
STREAM_ONLY: Final = (
    "subscribe",
    "subscribePattern",
    "startingOffsets",
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "failOnDataLoss",
    "bound",
    "isolation",
)
"""Options of `spark.readStream`."""
_BY_KEY: Final = {each.name.lower(): each for each in OPTIONS}


class Options(NamedTuple):
    """The values of the options of one `load`."""

    paths: list[str]
    mode: str
    task_bytes: int
    include_control: bool
    include_deleted: bool
    replicas: str
    at_ms: int | None


def read_options(given: Mapping[str, str]) -> Options:
    """Check the given options. Raises UsageError that names the option, also for an unknown one."""
    options = {key.lower(): str(value) for key, value in given.items()}
    for key, name in zip(options, given, strict=True):
        if key not in _BY_KEY and key != "paths":  # Spark's own, for a `load` of a list.
            raise UsageError(f"kafkalog has no option {name}; it has {', '.join(each.name for each in OPTIONS)}")
    mode = options.get("mode", "records")
    if mode not in MODES:
        raise UsageError(f"mode {mode} is not one of {', '.join(MODES)}")
    replicas = options.get("replicas", FURTHEST if mode in STATE_MODES else ALL)
    if replicas not in (ALL, FURTHEST):
        raise UsageError(f"replicas={replicas}: not one of {ALL}, {FURTHEST}")
    at = options.get("at")
    if at is not None and mode not in ("groups", "transactions"):
        raise UsageError(f"at={at}: only modes groups and transactions have states of another time")
    return Options(
        _paths(options),
        mode,
        _bytes(options),
        flag(options, "includeControl"),
        flag(options, "includeDeleted"),
        replicas,
        None if at is None else parse_time(at, "at"),
    )


def refuse_stream_options(given: Mapping[str, str]) -> None:
    """Raise UsageError for an option that only a stream has."""
    keys = {key.lower() for key in given}
    for name in STREAM_ONLY:
        if name.lower() in keys:
            raise UsageError(f"{name} is an option of spark.readStream; spark.read reads the existing data")


def _paths(options: Mapping[str, str]) -> list[str]:
    """The paths of `load`: one string with commas, or several."""
    if options.get("paths"):
        paths = [str(path) for path in json.loads(options["paths"])]
    else:
        paths = [path.strip() for path in options.get("path", "").split(",") if path.strip()]
    if not paths:
        raise UsageError('kafkalog needs a path: spark.read.format("kafkalog").load("/data/kafka")')
    return [absolute_path(path) for path in plain_paths(paths)]


def flag(options: Mapping[str, str], name: str, default: str = "false") -> bool:
    """An option that is true or false, from options with small letters."""
    text = options.get(name.lower(), default).lower()
    if text not in ("true", "false"):
        raise UsageError(f"{name}={text}: not one of true, false")
    return text == "true"


def _bytes(options: Mapping[str, str]) -> int:
    text = options.get("taskbytes", str(TASK_BYTES))
    if not text.isdecimal() or int(text) < 1:
        raise UsageError(f"taskBytes={text}: not a number of bytes, 1 or more")
    return int(text)


def options_table() -> str:
    """The table of docs/spark.md."""
    lines = ["| option | values | default | meaning |", "| --- | --- | --- | --- |"]
    lines += [f"| `{each.name}` | {each.values} | {each.default} | {each.meaning} |" for each in OPTIONS]
    return "\n".join(lines) + "\n"
