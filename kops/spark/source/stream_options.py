"""The options of `spark.readStream.format("kafkalog")`; the table of all options is in `kops.spark.source.options`.

Names and meanings are those of Spark's Kafka connector (`KafkaSourceProvider`) where it has the option.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from kops.errors import UsageError
from kops.forensics.dump.isolation import ISOLATIONS, READ_COMMITTED, READ_UNCOMMITTED
from kops.spark.source.options import flag, read_options
from kops.spark.tail.look import BOUNDS, HIGH_WATERMARK, LOG_END, METADATA_TOPIC
from kops.spark.tail.planning import Limits
from kops.spark.tail.positions import Positions, parse_starting_offsets

MODES: Final = ("records", "batches")
_BATCH_ONLY: Final = ("includeDeleted", "replicas", "at")


class StreamOptions(NamedTuple):
    """The values of the options of one stream."""

    paths: list[str]
    mode: str
    task_bytes: int
    include_control: bool
    topics: frozenset[str] | None
    pattern: str | None
    starting: int | Positions
    limits: Limits
    fails: bool
    bound: str
    isolation: str

    def wants(self, topic: str) -> bool:
        """Whether a topic is read. The metadata of the cluster is read only if it is named, because brokers checkpoint no high watermark of
        it."""
        if self.topics is not None:
            return topic in self.topics
        return topic != METADATA_TOPIC and (self.pattern is None or re.fullmatch(self.pattern, topic) is not None)

    @property
    def is_committed(self) -> bool:
        """Whether open and aborted transactions are left out."""
        return self.isolation == READ_COMMITTED


def read_stream_options(given: Mapping[str, str]) -> StreamOptions:
    """Check the given options. Raises UsageError that names the option."""
    plain = read_options(given)
    options = {key.lower(): str(value) for key, value in given.items()}
    for name in _BATCH_ONLY:
        if name.lower() in options:
            raise UsageError(f"{name} is an option of spark.read; a stream reads the live segments of the replica that serves")
    if plain.mode not in MODES:
        raise UsageError(f"mode {plain.mode} cannot be read as a stream; {' and '.join(MODES)} can")
    bound = _one_of(options, "bound", HIGH_WATERMARK, BOUNDS)
    isolation = _one_of(options, "isolation", READ_UNCOMMITTED, ISOLATIONS)
    if bound == LOG_END and isolation == READ_COMMITTED:
        raise UsageError(f"bound={LOG_END} contradicts isolation={READ_COMMITTED}: nothing above the high watermark is committed")
    topics, pattern = _topics(options)
    if topics is not None and METADATA_TOPIC in topics and bound == HIGH_WATERMARK:
        raise UsageError(f"subscribe={METADATA_TOPIC}: brokers checkpoint no high watermark of it; it needs bound={LOG_END}")
    return StreamOptions(
        plain.paths,
        plain.mode,
        plain.task_bytes,
        plain.include_control,
        topics,
        pattern,
        parse_starting_offsets(options.get("startingoffsets", "latest")),
        Limits(_number(options, "maxOffsetsPerTrigger"), _number(options, "maxBytesPerTrigger")),
        flag(options, "failOnDataLoss", "true"),
        bound,
        isolation,
    )


def _topics(options: Mapping[str, str]) -> tuple[frozenset[str] | None, str | None]:
    names, pattern = options.get("subscribe"), options.get("subscribepattern")
    if names is not None and pattern is not None:
        raise UsageError("subscribe and subscribePattern exclude each other")
    if names is not None:
        topics = frozenset(name.strip() for name in names.split(",") if name.strip())
        if not topics:
            raise UsageError("subscribe names no topic")
        return topics, None
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise UsageError(f"subscribePattern={pattern}: not a regular expression: {error}") from error
    return None, pattern


def _one_of(options: Mapping[str, str], name: str, default: str, allowed: tuple[str, ...]) -> str:
    value = options.get(name.lower(), default).lower()
    if value not in allowed:
        raise UsageError(f"{name}={value}: not one of {', '.join(allowed)}")
    return value


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name.lower())
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise UsageError(f"{name}={text}: not a number, 1 or more")
    return int(text)
