"""The progress of a stream: offsets by partition, in the form of Spark's checkpoint and of the option `startingOffsets`.

The form is that of Spark's Kafka connector (`JsonUtils.partitionOffsets`): `{"orders": {"0": 23, "1": 42}}`. Besides the topics there are
entries with names that no topic can have:

- `@ids`: the topic ids, so that a topic that was deleted and created again is not continued;
- `@epochs`: the leader epoch of the record before each offset, so that a log that was cut and written again is noticed (KIP-320);
- `@begins`: where the batch that ends here begins, for partitions where that is not the end of the batch before it;
- `@gone`: the offsets of partitions whose directories are gone. If one comes back, the stream goes on there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kops.errors import UsageError

EARLIEST: Final = -2
LATEST: Final = -1
"""What stands for an offset in `startingOffsets` (Spark's KafkaOffsetRangeLimit)."""
NO_EPOCH: Final = -1
_IDS: Final = "@ids"
_EPOCHS: Final = "@epochs"
_BEGINS: Final = "@begins"
_GONE: Final = "@gone"

Key = tuple[str, int]
"""Topic and partition."""


class Position(NamedTuple):
    """The next offset to read, and the leader epoch of the record before it (-1: unknown)."""

    offset: int
    epoch: int = NO_EPOCH


@dataclass(frozen=True, slots=True)
class Positions:
    """Where a stream is. `begins` has an entry for each partition that does not go on where it was, because something was lost."""

    at: Mapping[Key, Position] = field(default_factory=dict)
    ids: Mapping[str, str] = field(default_factory=dict)
    begins: Mapping[Key, int] = field(default_factory=dict)
    gone: Mapping[Key, Position] = field(default_factory=dict)

    def position(self, key: Key) -> Position | None:
        """Where the stream was in a partition, whether that is there now or gone; None if it never read it."""
        return self.at.get(key) or self.gone.get(key)

    def document(self) -> dict[str, Any]:
        """As JSON, sorted."""
        found: dict[str, Any] = _nested({key: position.offset for key, position in self.at.items()})
        if self.ids:
            found[_IDS] = dict(sorted(self.ids.items()))
        epochs = {key: position.epoch for key, position in {**self.gone, **self.at}.items() if position.epoch != NO_EPOCH}
        if epochs:
            found[_EPOCHS] = _nested(epochs)
        if self.begins:
            found[_BEGINS] = _nested(self.begins)
        if self.gone:
            found[_GONE] = _nested({key: position.offset for key, position in self.gone.items()})
        return found


def read_positions(document: Mapping[str, Any]) -> Positions:
    """The positions that `document` wrote. Raises UsageError for anything else."""
    topics = {name: value for name, value in document.items() if not name.startswith("@")}
    unknown = sorted(set(document) - set(topics) - {_IDS, _EPOCHS, _BEGINS, _GONE})
    if unknown:
        raise UsageError(f"{unknown[0]} in the offsets: neither a topic nor one of {_IDS}, {_EPOCHS}, {_BEGINS}, {_GONE}")
    epochs = dict(_flat(document.get(_EPOCHS, {}), _EPOCHS))
    at = {key: Position(offset, epochs.get(key, NO_EPOCH)) for key, offset in _flat(topics, "the offsets")}
    ids = document.get(_IDS, {})
    if not isinstance(ids, Mapping) or not all(isinstance(each, str) for each in ids.values()):
        raise UsageError(f"{_IDS} in the offsets: not topics with their ids")
    gone = {key: Position(offset, epochs.get(key, NO_EPOCH)) for key, offset in _flat(document.get(_GONE, {}), _GONE)}
    return Positions(at, dict(ids), dict(_flat(document.get(_BEGINS, {}), _BEGINS)), gone)


def parse_starting_offsets(text: str) -> int | Positions:
    """The option `startingOffsets`: EARLIEST, LATEST or positions, in which offsets may be -2 (earliest) and -1 (latest)."""
    word = text.strip().lower()
    if word in ("earliest", "latest"):
        return EARLIEST if word == "earliest" else LATEST
    try:
        document = json.loads(text)
    except ValueError as error:
        raise UsageError(f'startingOffsets={text}: not earliest, latest or JSON as {{"topic": {{"0": 23, "1": -1}}}}') from error
    if not isinstance(document, dict):
        raise UsageError(f'startingOffsets={text}: not a JSON object as {{"topic": {{"0": 23, "1": -1}}}}')
    try:
        found = read_positions(document)
    except UsageError as error:
        raise UsageError(f"startingOffsets: {error}") from error
    for (topic, partition), position in found.at.items():
        if position.offset < EARLIEST:
            raise UsageError(f"startingOffsets: {topic}-{partition} has offset {position.offset}; -2 is earliest, -1 is latest")
    return Positions(found.at, found.ids)


def _nested(values: Mapping[Key, int]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for (topic, partition), value in sorted(values.items()):
        found.setdefault(topic, {})[str(partition)] = value
    return found


def _flat(nested: Any, where: str) -> Iterable[tuple[Key, int]]:
    if not isinstance(nested, Mapping):
        raise UsageError(f"{where}: not an object of topics")
    for topic, partitions in nested.items():
        if not isinstance(partitions, Mapping):
            raise UsageError(f'{where}: {topic} has no partitions as {{"0": 23}}')
        for partition, value in partitions.items():
            if not (partition.isascii() and partition.isdecimal()) or not isinstance(value, int) or isinstance(value, bool):
                raise UsageError(f"{where}: {topic} has {json.dumps({partition: value})}, not a partition and a number")
            yield (topic, int(partition)), value
