"""A share session: the partitions of a member, in the order of their results. Sources: ShareSession, CachedSharePartition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from kops.protocol.messages.share_fetch_response import PartitionData
from kops.protocol.primitives import size_of

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 2**31 - 1


class TopicIdPartition(NamedTuple):
    """A partition by topic id, with the topic's name if it is known."""

    topic_id: bytes
    partition: int
    topic: str | None


class SessionKey(NamedTuple):
    """The group and member of a session."""

    group_id: str
    member_id: str


def next_epoch(epoch: int) -> int:
    """Return the epoch of the next request. The largest epoch is followed by 1; the final epoch does not change."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_EPOCH else epoch + 1


def has_records(result: PartitionData) -> bool:
    """Whether a result has records, in memory or in a file."""
    return result.records is not None and size_of(result.records) > 0


class CachedPartition:
    """A partition of a session. `must_respond` means that no response has included it since it was added or since its last error."""

    __slots__ = ("must_respond", "part")

    def __init__(self, part: TopicIdPartition, *, must_respond: bool) -> None:
        self.part = part
        self.must_respond = must_respond

    def on_result(self, result: PartitionData) -> bool:
        """Whether the response includes this result. After an error the next result is included even if it is empty."""
        is_told = self.must_respond or has_records(result) or result.error_code != 0
        self.must_respond = result.error_code != 0
        return is_told


class ShareSession:
    """One member's session; `epoch` is that of its next request."""

    __slots__ = ("_parts", "cached_size", "connection_id", "epoch", "key")

    def __init__(self, key: SessionKey, parts: Iterable[TopicIdPartition], connection_id: str) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = next_epoch(INITIAL_EPOCH)
        self.cached_size = 0
        """The number of partitions that the cache of sessions has counted for this session."""
        self._parts = {part[:2]: CachedPartition(part, must_respond=False) for part in parts}

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def parts(self) -> list[TopicIdPartition]:
        """Return its partitions. Those that had records in the last response come last."""
        return [cached.part for cached in self._parts.values()]

    def update(self, wanted: Iterable[TopicIdPartition], forgotten: Iterable[TopicIdPartition]) -> None:
        """Add and remove the partitions of a request."""
        for part in wanted:
            self._parts.setdefault(part[:2], CachedPartition(part, must_respond=True))
        for part in forgotten:
            self._parts.pop(part[:2], None)

    def on_result(self, part: TopicIdPartition, result: PartitionData) -> bool:
        """Whether the response includes this result."""
        cached = self._parts[part[:2]]
        is_told = cached.on_result(result)
        if has_records(result):
            self._parts[part[:2]] = self._parts.pop(part[:2])
        return is_told
