"""Filters for batches and records, and the encodings of keys and values as text.

Offsets and times are closed ranges. If possible, a batch is skipped by its header alone.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from kops.errors import DecodeError, UsageError
from kops.protocol.record_values import read_coordinator_key
from kops.protocol.registry import TRANSACTION_RECORDS
from kops.records import Batch, Record

ENCODINGS: Final = ("utf8", "hex", "base64")


@dataclass(slots=True)
class RecordFilter:
    """Conditions, all of which must hold; None and empty ones are ignored. Times in ms.

    `key` is searched for in the key's bytes (a null key never matches). `headers` has (key, value) pairs; the value None means any value.
    `control`: True selects only control records, False none of them. `transactional_id` selects records of __transaction_state for this id.
    """

    from_offset: int | None = None
    to_offset: int | None = None
    from_time: int | None = None
    to_time: int | None = None
    producer_id: int | None = None
    producer_epoch: int | None = None
    leader_epoch: int | None = None
    key: re.Pattern[bytes] | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    control: bool | None = None
    transactional_id: str | None = None

    @property
    def empty(self) -> bool:
        """Whether every record passes."""
        return self == RecordFilter()

    @property
    def of_records(self) -> bool:
        """Whether a batch's header alone is not enough to decide."""
        wanted = (self.from_offset, self.to_offset, self.from_time, self.to_time, self.key, self.transactional_id)
        return any(value is not None for value in wanted) or bool(self.headers)

    def batch_may_match(self, batch: Batch) -> bool:
        """False if no record of the batch can match, judged by its header (a v0 or v1 batch may hold offsets below its own)."""
        if self.from_offset is not None and batch.last_offset < self.from_offset:
            return False
        if self.to_offset is not None and batch.magic > 1 and batch.base_offset > self.to_offset:
            return False
        # The largest timestamp of a format without timestamps is -1, and so are those of its records.
        if self.from_time is not None and batch.max_timestamp < self.from_time:
            return False
        return (
            self.producer_id in (None, batch.producer_id)
            and self.producer_epoch in (None, batch.producer_epoch)
            and self.leader_epoch in (None, batch.partition_leader_epoch)
            and self.control in (None, batch.is_control)
        )

    def record_matches(self, record: Record) -> bool:
        """Whether a record matches, in a batch that may match."""
        offset, timestamp = record.offset, record.timestamp
        return (
            (self.from_offset is None or offset >= self.from_offset)
            and (self.to_offset is None or offset <= self.to_offset)
            and (self.from_time is None or timestamp >= self.from_time)
            and (self.to_time is None or timestamp <= self.to_time)
            and (self.key is None or (record.key is not None and self.key.search(record.key) is not None))
            and all(_has_header(record, key, value) for key, value in self.headers)
            and self.transactional_id in (None, _transactional_id(record.key))
        )


def _transactional_id(key: bytes | None) -> str | None:
    """The transactional id of a record of __transaction_state; None for any other record."""
    if key is None:
        return None
    try:
        return str(read_coordinator_key(key, TRANSACTION_RECORDS).transactional_id)  # type: ignore[attr-defined]  # there is one type
    except DecodeError:
        return None


def _has_header(record: Record, key: bytes, value: bytes | None) -> bool:
    for name, content in record.headers:
        same = (name.encode() if isinstance(name, str) else name) == key
        if same and (value is None or content == value):
            return True
    return False


def parse_time(text: str, option: str) -> int:
    """Milliseconds since 1970 from a number (ms) or ISO date and time (UTC unless it says otherwise). UsageError naming the option."""
    if text.lstrip("-").isascii() and text.lstrip("-").isdigit():
        return int(text)
    from datetime import UTC, datetime

    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(f"{option} {text}: neither milliseconds since 1970 nor an ISO time like 2026-11-21T13:05:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    whole = moment.astimezone(UTC).replace(microsecond=0, tzinfo=UTC)
    return int(whole.timestamp()) * 1000 + moment.microsecond // 1000


def parse_key(text: str, option: str) -> re.Pattern[bytes]:
    """A regular expression over the key's bytes. UsageError naming the option."""
    try:
        return re.compile(text.encode("utf-8", "surrogateescape"))
    except re.error as error:
        raise UsageError(f"{option} {text}: not a regular expression: {error}") from None


def parse_headers(texts: Sequence[str]) -> tuple[tuple[bytes, bytes | None], ...]:
    """`K=V` (this value) or `K` (any value), as UTF-8."""
    pairs = []
    for text in texts:
        key, equals, value = text.partition("=")
        pairs.append((key.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape") if equals else None))
    return tuple(pairs)


def encode_bytes(data: bytes | None, encoding: str) -> str | None:
    """Bytes as text; `utf8` shows invalid bytes as U+FFFD, so only `hex` and `base64` are reversible. None stays None."""
    if data is None:
        return None
    if encoding == "base64":
        return base64.b64encode(data).decode("ascii")
    return data.hex() if encoding == "hex" else data.decode("utf-8", "replace")


def check_encoding(encoding: str, option: str) -> str:
    """Return the encoding if it is known. Raises UsageError that names the option."""
    if encoding not in ENCODINGS:
        raise UsageError(f"{option} {encoding}: not one of {', '.join(ENCODINGS)}")
    return encoding
