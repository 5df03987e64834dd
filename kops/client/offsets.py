"""Asks leaders for offsets of partitions: start and end of a log, the offset of a time. Also deletes the beginning of a log.

Source: Kafka's ListOffsetsHandler and DeleteRecordsHandler (both use PartitionLeaderStrategy and ask again after the leader has moved),
OffsetSpec, GetOffsetShell, DeleteRecordsCommand (the JSON file).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kops.client.client import WAITING_MS, Call, Client, T
from kops.client.topics import error_of
from kops.errors import ApiError, DecodeError, UnreachableError, UsageError
from kops.protocol.errors import by_name
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
# The first version of ListOffsets that supports each of them.
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_TOLD: Final = 3
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


def by_leader(
    client: Client,
    name: str,
    keys: Iterable[TopicPartition],
    make: Callable[[list[TopicPartition]], Callable[[int], Message]],
    handle: Callable[[Message], dict[TopicPartition, T | ApiError]],
    *,
    versions: range | None = None,
) -> dict[TopicPartition, T | ApiError]:
    """Ask the leader of each partition, all leaders at the same time, and ask again after a leader has moved.

    A partition without an answer within `default.api.timeout.ms` has its last error. Raises UnreachableError if a leader can't be reached.
    """
    began_ms = client.now_ms()
    deadline_ms = began_ms + client.settings.default_api_timeout_ms
    pending = list(dict.fromkeys(keys))
    outcomes: dict[TopicPartition, T | ApiError] = {}
    tries = 0
    while pending:
        leaders, again = _find_leaders(client, pending, outcomes)
        left_ms = max(int(deadline_ms - client.now_ms()), 1)
        calls = [
            Call(name, node_id, make(group), handle, timeout_ms=left_ms, versions=versions, may_move=True)
            for node_id, group in leaders.items()
            if group
        ]
        client.run(calls)
        for call, group in zip(calls, [group for group in leaders.values() if group], strict=True):
            for key, outcome in _of_call(call, group).items():
                if isinstance(outcome, ApiError) and by_name(outcome.name).retriable:
                    again[key] = outcome
                else:
                    outcomes[key] = outcome
        pending = list(again)
        is_late = client.now_ms() >= deadline_ms
        _ensure_reachable(client, [node_id for node_id, group in leaders.items() if not again.keys().isdisjoint(group)], is_late)
        if pending and is_late:
            return outcomes | again
        if pending:
            if client.now_ms() - began_ms >= WAITING_MS:
                told = [f"{key.topic}-{key.partition}: {error}" for key, error in list(again.items())[:_TOLD]]
                client.tell("; ".join(told) + ("; …" if len(again) > _TOLD else ""))
            _pause(client, client.backoff.delay_ms(tries))
            tries += 1
    return outcomes


def _of_call(call: Call[dict[TopicPartition, T | ApiError]], group: list[TopicPartition]) -> dict[TopicPartition, T | ApiError]:
    """Return the outcomes of a call to one leader. Raises UnreachableError if it was never reached."""
    if isinstance(call.error, UnreachableError):
        raise call.error
    if isinstance(call.error, ApiError):
        return dict.fromkeys(group, call.error)
    return call.value


def _ensure_reachable(client: Client, node_ids: Iterable[int], is_late: bool) -> None:
    """Raise UnreachableError for a leader that can't be reached if little time is left or no other broker can replace it."""
    for node in map(client.metadata.nodes.get, node_ids):
        if node is not None:
            client.ensure_reachable(node, is_late=is_late)


def _find_leaders(
    client: Client, keys: list[TopicPartition], outcomes: dict[TopicPartition, T | ApiError]
) -> tuple[dict[int, list[TopicPartition]], dict[TopicPartition, ApiError]]:
    """Return (partitions by leader, partitions whose leader is still unknown). Partitions that can't succeed are added to `outcomes`."""
    response = client.fetch_metadata(sorted({key.topic for key in keys}))
    errors = {topic.name or "": error_of(topic.error_code) for topic in response.topics}
    leaders: dict[int, list[TopicPartition]] = {}
    again: dict[TopicPartition, ApiError] = {}
    for key in keys:
        error = errors.get(key.topic)
        leader = client.metadata.leaders.get(key)
        if error is None and key.partition >= client.metadata.partition_counts.get(key.topic, 0):
            error = ApiError("UNKNOWN_TOPIC_OR_PARTITION", "there is no such partition")
        if error is not None:
            if error.name in ("LEADER_NOT_AVAILABLE",):
                again[key] = error
            else:
                outcomes[key] = error
        elif leader is None or leader.node_id < 0:
            again[key] = ApiError("LEADER_NOT_AVAILABLE", "it has no leader")
        else:
            leaders.setdefault(leader.node_id, []).append(key)
    return leaders, again


def _pause(client: Client, pause_ms: float) -> None:
    until_ms = client.now_ms() + pause_ms
    while (left_ms := until_ms - client.now_ms()) > 0:
        client.turn(left_ms)


# ListOffsets


def list_offsets(
    client: Client, targets: Mapping[TopicPartition, int], *, committed: bool = False
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """Ask the leader of each partition for the offset of a time in ms, or of EARLIEST, LATEST …. `committed` reads as with
    read_committed.
    """
    from kops.protocol.messages import ListOffsetsRequest, ListOffsetsResponse
    from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic

    first = max([_SINCE.get(target, 1) for target in targets.values()] + [2 if committed else 1])

    def make(keys: list[TopicPartition]) -> Callable[[int], Message]:
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for key in keys:
            epoch = client.metadata.leaders[key].epoch
            entry = ListOffsetsPartition(partition_index=key.partition, current_leader_epoch=epoch, timestamp=targets[key])
            topics.setdefault(key.topic, []).append(entry)
        entries = [ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        return lambda timeout_ms: ListOffsetsRequest(replica_id=-1, isolation_level=int(committed), topics=entries, timeout_ms=timeout_ms)

    def handle(response: Message) -> dict[TopicPartition, ListedOffset | ApiError]:
        assert isinstance(response, ListOffsetsResponse)
        return {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code)
            or ListedOffset(one.offset, one.timestamp, one.leader_epoch)
            for topic in response.topics
            for one in topic.partitions
        }

    return by_leader(client, "list offsets", targets, make, handle, versions=range(first, ListOffsetsRequest.VERSIONS.stop))


def resolve_offsets(
    client: Client, specs: Mapping[TopicPartition, OffsetSpec], *, committed: bool = False
) -> dict[TopicPartition, ListedOffset | ApiError]:
    """Return the current offset for each specification.

    A time after the last record, and any time in a log without records, stand for the end. Numbers are limited to the log's range.
    """
    targets = {key: spec.value if spec.kind in ("named", "time") else LATEST for key, spec in specs.items()}
    found = list_offsets(client, targets, committed=committed)
    nothing = {key: LATEST for key, listed in found.items() if isinstance(listed, ListedOffset) and listed.offset < 0}
    if nothing:
        found |= list_offsets(client, nothing, committed=committed)
    numbered = {key for key, spec in specs.items() if spec.kind in ("offset", "before-end")}
    starts = list_offsets(client, dict.fromkeys(numbered, EARLIEST)) if numbered else {}
    for key in numbered:
        end, start = found[key], starts[key]
        if isinstance(end, ListedOffset) and isinstance(start, ListedOffset):
            spec = specs[key]
            wanted = spec.value if spec.kind == "offset" else end.offset - spec.value
            found[key] = ListedOffset(min(max(wanted, start.offset), end.offset), -1, -1)
    return found


# DeleteRecords


def delete_records(client: Client, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | ApiError]:
    """Move the start of logs to these offsets (HIGH_WATERMARK: the end of the replicated part), and return the new low watermarks."""
    from kops.protocol.messages import DeleteRecordsRequest, DeleteRecordsResponse
    from kops.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsTopic

    def make(keys: list[TopicPartition]) -> Callable[[int], Message]:
        topics: dict[str, list[DeleteRecordsPartition]] = {}
        for key in keys:
            topics.setdefault(key.topic, []).append(DeleteRecordsPartition(partition_index=key.partition, offset=offsets[key]))
        entries = [DeleteRecordsTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        return lambda timeout_ms: DeleteRecordsRequest(topics=entries, timeout_ms=timeout_ms)

    def handle(response: Message) -> dict[TopicPartition, int | ApiError]:
        assert isinstance(response, DeleteRecordsResponse)
        return {
            TopicPartition(topic.name, one.partition_index): error_of(one.error_code) or one.low_watermark
            for topic in response.topics
            for one in topic.partitions
        }

    return by_leader(client, "delete records", offsets, make, handle)


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
