"""Plans new offsets of groups, within the limits of the logs, and reads and writes Kafka's CSV files of offsets.

Source: Kafka's OffsetsUtils (`resetTo…`, `resetByShiftBy`, `resetByDuration`, `checkOffsetsRange`, `parseResetPlan`,
`parseTopicPartitionsToReset`), CsvUtils, ConsumerGroupCommand.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kops.client.client import Client
from kops.client.coordinators.group_offsets import GroupOffsets
from kops.client.leaders.offsets import list_offsets
from kops.client.offsets import EARLIEST, LATEST, ListedOffset
from kops.client.topics import describe_topics
from kops.errors import ApiError, DecodeError, NotFoundError, UsageError
from kops.records.log_offsets import TopicPartition

_DURATION: Final = re.compile(
    r"([+-]?)P(?:([+-]?\d+)D)?(?:T(?:([+-]?\d+)H)?(?:([+-]?\d+)M)?(?:([+-]?\d+)(?:[.,](\d{0,9}))?S)?)?", re.IGNORECASE | re.ASCII
)
_SECONDS: Final = (86_400, 3600, 60, 1)
Plan = dict[str, dict[TopicPartition, int]]
"""Offsets by group."""
Tell = Callable[[str], object]


class Target(NamedTuple):
    """The target of a reset. `kind` is `earliest`, `latest`, `current`, `offset`, `shift` or `time` (ms); the last three have a value."""

    kind: str
    value: int = 0


def parse_duration_ms(text: str, option: str) -> int:
    """Return the milliseconds of an ISO duration, such as PT1H30M or P7D. Raises UsageError that names the option."""
    match = _DURATION.fullmatch(text.strip())
    if match is None or not any(match.groups()[1:5]) or text.strip().upper().endswith("T"):
        raise UsageError(f"{option} {text}: not allowed; allowed: an ISO duration, such as PT1H30M or P7D")
    seconds = sum(int(number or 0) * unit for number, unit in zip(match.groups()[1:5], _SECONDS, strict=True))
    fraction = int((match[6] or "").ljust(3, "0")[:3]) * (-1 if (match[5] or "").startswith("-") else 1)
    return (seconds * 1000 + fraction) * (-1 if match[1] == "-" else 1)


def parse_topics(client: Client, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions for `topic` (all of them) or `topic:0,2`. Raises UsageError, and NotFoundError for a missing topic."""
    keys: list[TopicPartition] = []
    names = []
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            names.append(name)
            continue
        parts = numbers.split(",")
        if not all(part.isascii() and part.isdigit() for part in parts):
            raise UsageError(f"--topic {text}: not allowed; allowed: a topic, or a topic with partitions, such as orders:0,2")
        keys += [TopicPartition(name, int(part)) for part in parts]
    for name, info in describe_topics(client, names).items():
        if isinstance(info, ApiError):
            raise NotFoundError(_no_such_topic(client, name)) if info.name == "UNKNOWN_TOPIC_OR_PARTITION" else info
        keys += [TopicPartition(name, one.partition) for one in info.partitions]
    return sorted(set(keys))


def _no_such_topic(client: Client, name: str) -> str:
    """Return the reason. Tables and messages show a partition as `orders-0`, so that is what users often write."""
    topic, dash, number = name.rpartition("-")
    if dash and topic and number.isascii() and number.isdigit() and not isinstance(describe_topics(client, [topic])[topic], ApiError):
        return f"no such topic: {name}; for the partition of {topic}, write {topic}:{int(number)}"
    return f"no such topic: {name}"


def check_partitions(client: Client, keys: Iterable[TopicPartition]) -> None:
    """Raise NotFoundError for partitions that do not exist, ApiError LEADER_NOT_AVAILABLE for those without a leader."""
    wanted = list(keys)
    found = describe_topics(client, {key.topic for key in wanted})
    missing, leaderless = [], []
    for key in wanted:
        info = found[key.topic]
        parts = {} if isinstance(info, ApiError) else {one.partition: one for one in info.partitions}
        if key.partition not in parts:
            missing.append(f"{key.topic}-{key.partition}")
        elif parts[key.partition].leader is None:
            leaderless.append(f"{key.topic}-{key.partition}")
    if missing:
        raise NotFoundError(f"no such partition: {', '.join(missing)}")
    if leaderless:
        raise ApiError("LEADER_NOT_AVAILABLE", f"no leader: {', '.join(leaderless)}")


def plan(client: Client, keys: Sequence[TopicPartition], target: Target, committed: GroupOffsets, tell: Tell) -> dict[TopicPartition, int]:
    """Return the new offset of each partition. `tell` gets a message for each that had to be adjusted. Raises ApiError, UsageError."""
    match target.kind:
        case "earliest" | "latest":
            return _listed(client, dict.fromkeys(keys, EARLIEST if target.kind == "earliest" else LATEST))
        case "time":
            return _at_time(client, keys, target.value, tell)
        case "current":
            missing = [key for key in keys if key not in committed]
            return {key: committed[key].offset for key in keys if key in committed} | _listed(client, dict.fromkeys(missing, LATEST))
        case "shift":
            missing = [key for key in keys if key not in committed]
            if missing:
                names = ", ".join(f"{key.topic}-{key.partition}" for key in missing)
                raise UsageError(f"--shift-by: no offset is committed for {names}")
            return within_logs(client, {key: committed[key].offset + target.value for key in keys}, tell)
        case _:
            return within_logs(client, dict.fromkeys(keys, target.value), tell)


def within_logs(client: Client, wanted: Mapping[TopicPartition, int], tell: Tell) -> dict[TopicPartition, int]:
    """Return the offsets. Those outside of their log are moved to its start or end."""
    starts, ends = (_listed(client, dict.fromkeys(wanted, target)) for target in (EARLIEST, LATEST))
    found = {}
    for key, offset in wanted.items():
        found[key] = min(max(offset, starts[key]), ends[key])
        if found[key] != offset:
            where = "higher than the latest" if offset > ends[key] else "lower than the earliest"
            tell(f"{key.topic}-{key.partition}: offset {offset} is {where}; {found[key]} is used")
    return found


def _at_time(client: Client, keys: Iterable[TopicPartition], time_ms: int, tell: Tell) -> dict[TopicPartition, int]:
    found = _listed(client, dict.fromkeys(keys, time_ms))
    nothing = [key for key, offset in found.items() if offset < 0]
    for key in nothing:
        tell(f"{key.topic}-{key.partition}: no record at or after that time; the end is used")
    return found | _listed(client, dict.fromkeys(nothing, LATEST))


def _listed(client: Client, targets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    found = {}
    for key, one in list_offsets(client, targets).items() if targets else ():
        if not isinstance(one, ListedOffset):
            raise ApiError(one.name, f"{key.topic}-{key.partition}: {one}")
        found[key] = one.offset
    return found


def read_csv(text: str, groups: Sequence[str], source: str) -> Plan:
    """Parse lines of `group,topic,partition,offset`, or `topic,partition,offset` for a single group. Raises DecodeError."""
    found: Plan = {}
    for number, row in enumerate(csv.reader(io.StringIO(text)), 1):
        if not row:
            continue
        where = f"{source}:{number}"
        if len(row) == 3 and len(groups) == 1:
            row = [groups[0], *row]
        if len(row) != 4:
            wanted = "topic,partition,offset" if len(groups) == 1 else "group,topic,partition,offset"
            hint = "; name the group with --group if the file has none" if len(row) == 3 and not groups else ""
            raise DecodeError(f"{where}: {len(row)} fields, but {wanted} is needed{hint}", code="bad-csv")
        group_id, topic, partition, offset = (part.strip() for part in row)
        if not (partition.isascii() and partition.isdigit() and re.fullmatch(r"-?\d+", offset, re.ASCII)):
            raise DecodeError(f"{where}: partition and offset must be numbers: {partition}, {offset}", code="bad-csv")
        found.setdefault(group_id, {})[TopicPartition(topic, int(partition))] = int(offset)
    return found


def csv_rows(offsets: Plan, *, with_group: bool) -> list[tuple[str | int, ...]]:
    """Return the rows of such a file."""
    rows: list[tuple[str | int, ...]] = []
    for group_id in sorted(offsets):
        for key in sorted(offsets[group_id]):
            place = (key.topic, key.partition, offsets[group_id][key])
            rows.append((group_id, *place) if with_group else place)
    return rows
