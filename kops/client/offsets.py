"""The offsets that a user may name, and Kafka's JSON files of partitions. `kops.client.leaders` asks for them.

Source: Kafka's OffsetSpec, GetOffsetShell, DeleteRecordsCommand (the JSON file).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, TypeVar

from kops.errors import DecodeError, UsageError
from kops.records.log_offsets import TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
HIGH_WATERMARK: Final = -1  # delete everything that is replicated
_NAMES: Final = {
    "earliest": EARLIEST,
    "beginning": EARLIEST,
    "latest": LATEST,
    "end": LATEST,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL,
    "latest-tiered": LATEST_TIERED,
    "earliest-pending-upload": EARLIEST_PENDING_UPLOAD,
}
_ALLOWED: Final = "earliest, latest, max-timestamp, an offset N, -N (that many before the end), @MS or an ISO date and time"
K = TypeVar("K")


class OffsetSpec(NamedTuple):
    """The specification of an offset. `kind` is `named` (value: EARLIEST …), `offset`, `before-end` (value: how many) or `time` (value:
    ms).
    """

    kind: str
    value: int


class ListedOffset(NamedTuple):
    """An offset with the time and the leader epoch of its record, -1 if they are unknown. Offset -1 means that there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


def parse_offset(text: str, option: str = "--offset") -> OffsetSpec:
    """Parse `earliest | latest | max-timestamp | N | -N | @timestamp | ISO date-time`. Raises UsageError with the option and the allowed
    values.
    """
    word = text.strip()
    if word in _NAMES:
        return OffsetSpec("named", _NAMES[word])
    if re.fullmatch(r"[0-9]+", word, re.ASCII):
        return OffsetSpec("offset", int(word))
    if re.fullmatch(r"-[0-9]+", word, re.ASCII):
        return OffsetSpec("before-end", int(word[1:]))
    if re.fullmatch(r"@[0-9]+", word, re.ASCII):
        return OffsetSpec("time", int(word[1:]))
    time_ms = _iso_ms(word.removeprefix("@"))
    if time_ms is None:
        raise UsageError(f"{option} {text}: not allowed; allowed: {_ALLOWED}")
    return OffsetSpec("time", time_ms)


def _iso_ms(text: str) -> int | None:
    """Return the milliseconds of an ISO date and time (UTC unless it has an offset), or None for any other text."""
    from datetime import UTC, datetime, timedelta

    if not re.match(r"[0-9]{4}-", text):
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


def parse_delete_records(text: str, file: str) -> dict[TopicPartition, int]:
    """Parse Kafka's offset JSON file: `{"partitions": [{"topic", "partition", "offset"}…], "version": 1}`. Raises DecodeError."""
    found: dict[TopicPartition, int] = {}
    for entry in json_entries(text, file, "partitions"):
        key = TopicPartition(json_field(entry, "topic", str, file), json_field(entry, "partition", int, file))
        if key in found:
            raise DecodeError(f"{key.topic}-{key.partition} appears twice", code="bad-json", file=file)
        found[key] = json_field(entry, "offset", int, file)
    return found


def json_entries(text: str, file: str, name: str) -> list[dict[str, Any]]:
    """Return the objects in the array `name` of one of Kafka's JSON files of version 1. Raises DecodeError (`bad-json`)."""
    try:
        document = json.loads(text)
    except ValueError as error:
        raise DecodeError(f"not JSON: {error}", code="bad-json", file=file) from None
    if not isinstance(document, dict) or not isinstance(document.get(name), list):
        raise DecodeError(f'not a JSON object with an array "{name}"', code="bad-json", file=file)
    if document.get("version", 1) != 1:
        raise DecodeError(f"version {document['version']} is not known; allowed: 1", code="bad-json", file=file)
    for entry in document[name]:
        if not isinstance(entry, dict):
            raise DecodeError(f'an element of "{name}" is not an object', code="bad-json", file=file)
    return list(document[name])


def json_field(entry: Mapping[str, Any], name: str, kind: type[K], file: str) -> K:
    """Return a field of such an object. Raises DecodeError if it is missing or has another type."""
    value = entry.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        wanted = {str: "a text", int: "a number", list: "an array"}[kind]
        raise DecodeError(f'"{name}" of {json.dumps(entry)} is not {wanted}', code="bad-json", file=file)
    return value
