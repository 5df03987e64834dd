"""What a program decided about the records that it acquired, in the form in which requests carry it.

Source: Kafka's Acknowledgements, AcknowledgementBatch, AcknowledgeType, NodeAcknowledgements.
"""

from __future__ import annotations

from enum import IntEnum
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kops.client.errors import KafkaError

GAP: Final = 0
"""The type of an acquired offset at which there is no record: a control record, or one that compaction has removed."""
_LONGEST_MIXED_RUN: Final = 10  # a longer run of one type becomes a batch of its own, which names its type once


class AcknowledgeType(IntEnum):
    """What became of a record."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed, and may be delivered again."""
    REJECT = 3
    """It can't be processed. It is not delivered again."""
    RENEW = 4
    """It is still being processed. The acquisition lock starts again."""

    @classmethod
    def _missing_(cls, value: object) -> AcknowledgeType:
        allowed = ", ".join(f"AcknowledgeType.{one.name}" for one in cls)
        raise UsageError(f"{value!r} is not a kind of acknowledgement; allowed: {allowed}")


class TopicIdPartition(NamedTuple):
    """A partition of a topic with the topic's id: a topic that was deleted and created again is another one."""

    topic_id: bytes
    partition: int
    topic: str


class AckBatch(NamedTuple):
    """Consecutive offsets with their types. One type stands for all offsets."""

    first_offset: int
    last_offset: int
    types: list[int]


class Acknowledgements:
    """The types of some offsets of one partition. After the answer of the broker, `is_completed` is true and `error` is the outcome."""

    __slots__ = ("error", "is_completed", "types")

    def __init__(self) -> None:
        self.types: dict[int, int] = {}
        self.is_completed = False
        self.error: KafkaError | None = None

    def __len__(self) -> int:
        return len(self.types)

    def complete(self, error: KafkaError | None) -> None:
        """Store the outcome."""
        self.is_completed = True
        self.error = error

    def merge(self, other: Acknowledgements) -> None:
        """Add others. Where both have an offset, the other wins."""
        self.types.update(other.types)

    @property
    def has_renewals(self) -> bool:
        """Whether a lock is to be renewed."""
        return AcknowledgeType.RENEW in self.types.values()

    def batches(self) -> list[AckBatch]:
        """Return the batches of a request, by offset."""
        found: list[AckBatch] = []
        for stretch in self._stretches():
            start = 0
            begin = 0  # of the pending runs
            pending: list[int] = []
            types = [self.types[offset] for offset in stretch]
            for kind, group in groupby(types):
                length = len(list(group))
                if length > _LONGEST_MIXED_RUN:
                    if pending:
                        found.append(_batch(stretch[begin], pending))
                        pending = []
                    found.append(AckBatch(stretch[start], stretch[start + length - 1], [kind]))
                    begin = start + length
                else:
                    pending += [kind] * length
                start += length
            if pending:
                found.append(_batch(stretch[begin], pending))
        return found

    def _stretches(self) -> Iterator[list[int]]:
        stretch: list[int] = []
        for offset in sorted(self.types):
            if stretch and offset != stretch[-1] + 1:
                yield stretch
                stretch = []
            stretch.append(offset)
        if stretch:
            yield stretch


def _batch(first: int, types: list[int]) -> AckBatch:
    return AckBatch(first, first + len(types) - 1, types[:1] if len(set(types)) == 1 else types)


class NodeAcknowledgements(NamedTuple):
    """Acknowledgements, and the node that delivered the records: only it knows of their locks."""

    node_id: int
    acknowledgements: Acknowledgements


AcknowledgementMap = dict[TopicIdPartition, NodeAcknowledgements]
