"""`kops log grep` and `kops scan grep`: the records of a log for which conditions hold.

A condition about a batch's header (offsets, times, producer, leader epoch, transaction) is decided without its records. A batch without
compression is not decoded either if it lacks a text that every match has.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Final, NamedTuple

from kops.errors import DecodeError
from kops.forensics.coordinators.records import UNDECODABLE, Lost
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.inventory.replicas import Replica
from kops.forensics.inventory.tree import Segment
from kops.forensics.questions.outcomes import Outcomes
from kops.forensics.questions.reading import segments_of
from kops.forensics.questions.values.json_path import Condition
from kops.records import Batch, Damage, Record

ValueDecoder = Callable[[bytes], Any]
HeaderPattern = tuple[bytes, re.Pattern[bytes] | None]
_SPECIAL: Final = frozenset(b".^$*+?{}[]\\|()")


@dataclass(slots=True)
class Search:
    """The conditions of a search, which all have to hold.

    `limits` are offsets, times, producer and epochs. `producers` are the ids of one transactional id, `outcomes` the ends of transactions
    that are wanted. `invert` inverts the conditions on key, value, headers and parts, but not the others. `decode` decodes a value of JSON,
    Avro or Protobuf, in which `parts` are looked up.
    """

    limits: RecordFilter = field(default_factory=lambda: RecordFilter(control=False))
    key: re.Pattern[bytes] | None = None
    value: re.Pattern[bytes] | None = None
    headers: tuple[HeaderPattern, ...] = ()
    parts: tuple[Condition, ...] = ()
    decode: ValueDecoder | None = None
    producers: frozenset[int] | None = None
    outcomes: frozenset[str] = frozenset()
    invert: bool = False

    @property
    def looks_into_records(self) -> bool:
        """Whether there are conditions on the contents of records."""
        return bool(self.key or self.value or self.headers or self.parts)

    def literals(self) -> list[bytes]:
        """Return texts that a batch without compression contains if one of its records matches."""
        if self.invert:
            return []
        found = [name for name, _ in self.headers]
        found += [text for pattern in (self.key, self.value, *(pattern for _, pattern in self.headers)) if (text := literal_of(pattern))]
        return found


class Hit(NamedTuple):
    """A record that was found, and its decoded value (None if no decoder was given)."""

    batch: Batch
    record: Record
    decoded: Any


def literal_of(pattern: re.Pattern[bytes] | None) -> bytes | None:
    """Return a text that every match of a pattern contains, or None if none is obvious."""
    if pattern is None:
        return None
    text: bytes = pattern.pattern
    text = text.removeprefix(b"^")
    if text.endswith(b"$") and not text.endswith(b"\\$"):
        text = text[:-1]
    return text if text and not _SPECIAL & set(text) and not pattern.flags & (re.IGNORECASE | re.VERBOSE) else None


def search(items: Iterable[Batch | Damage], wanted: Search, path: str, outcomes: Outcomes | None = None) -> Iterator[Hit | Lost]:
    """Yield the records that match, in order, from the batches and damage of the segment `path`.

    Damage and values that do not fit their schema are also yielded. Such a value has no parts, and neither has one that is not JSON.
    `outcomes` are those of the log's transactions, needed for `wanted.outcomes`.
    """
    literals = wanted.literals()
    for item in items:
        if isinstance(item, Damage):
            yield Lost(path, item.position, item.length, item.base_offset, item.last_offset, item.reason)
            continue
        if not _batch_may_match(item, wanted, outcomes):
            continue
        if literals and item.magic > 1 and not item.compressed and not _has_all(item, literals):
            continue
        try:
            yield from _matches(item, wanted, path)
        except DecodeError as error:
            yield Lost(path, item.position, item.size, item.base_offset, item.last_offset, error.reason)


def _batch_may_match(batch: Batch, wanted: Search, outcomes: Outcomes | None) -> bool:
    if not wanted.limits.batch_may_match(batch) or (wanted.producers is not None and batch.producer_id not in wanted.producers):
        return False
    if wanted.producers is not None and not batch.is_transactional:
        return False
    return not wanted.outcomes or (outcomes is not None and outcomes.of(batch) in wanted.outcomes)


def _has_all(batch: Batch, literals: list[bytes]) -> bool:
    find, start, end = batch.buffer.find, batch.index, batch.index + batch.size
    return all(find(text, start, end) >= 0 for text in literals)


def _matches(batch: Batch, wanted: Search, path: str) -> Iterator[Hit | Lost]:
    has_limits = wanted.limits.of_records
    for record in batch.iterate():
        if has_limits and not wanted.limits.record_matches(record):
            continue
        is_found = _bytes_match(record, wanted)
        decoded = None
        if wanted.decode is not None and (is_found or wanted.invert):
            has_parts = not wanted.parts
            if record.value is not None:
                try:
                    decoded = wanted.decode(record.value)
                    has_parts = all(part.holds(decoded) for part in wanted.parts)
                except DecodeError as error:
                    if wanted.decode is not decode_json:
                        yield Lost(path, batch.position, batch.size, record.offset, record.offset, f"{UNDECODABLE}: {error.reason}")
            is_found = is_found and has_parts
        if is_found != wanted.invert:
            yield Hit(batch, record, decoded)


def _bytes_match(record: Record, wanted: Search) -> bool:
    key, value = wanted.key, wanted.value
    return (
        (key is None or (record.key is not None and key.search(record.key) is not None))
        and (value is None or (record.value is not None and value.search(record.value) is not None))
        and all(_has_header(record, name, pattern) for name, pattern in wanted.headers)
    )


def _has_header(record: Record, name: bytes, pattern: re.Pattern[bytes] | None) -> bool:
    for key, value in record.headers:
        same = (key.encode() if isinstance(key, str) else key) == name
        if same and (pattern is None or (value is not None and pattern.search(value) is not None)):
            return True
    return False


def segments_to_search(replica: Replica, wanted: Search) -> Iterator[Segment]:
    """Yield the segments that may have a match, by the offsets in their names."""
    segments = segments_of(replica)
    low, high = wanted.limits.from_offset, wanted.limits.to_offset
    for segment, following in zip_longest(segments, segments[1:]):
        ends_before = low is not None and following is not None and following.base_offset <= low
        if not ends_before and (high is None or segment.base_offset <= high):
            yield segment


def decode_json(data: bytes) -> Any:
    """Decode a value of JSON. Raises DecodeError."""
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}") from None


def row_of(replica: Replica, path: str, hit: Hit) -> dict[str, Any]:
    """Return the row of a record. Keys and values are bytes, header keys are text or bytes."""
    batch, record = hit.batch, hit.record
    is_v2 = batch.magic > 1
    directory = replica.directory
    return {
        "topic": directory.topic,
        "partition": directory.partition if directory.topic is not None else None,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "key": record.key,
        "value": record.value,
        "decoded": hit.decoded,
        "headers": record.headers,
        "leader_epoch": batch.partition_leader_epoch if is_v2 else None,
        "producer_id": batch.producer_id if is_v2 else None,
        "producer_epoch": batch.producer_epoch if is_v2 else None,
        "sequence": record.sequence,
        "path": path,
        "broker": replica.broker,
    }
