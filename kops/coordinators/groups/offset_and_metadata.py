"""A committed offset and its expiry (Kafka's OffsetAndMetadata, OffsetExpirationCondition)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kops.protocol.declaration import ZERO_UUID
from kops.protocol.messages.offset_commit_value import OffsetCommitValue

_new: Final[Any] = tuple.__new__


class OffsetAndMetadata(NamedTuple):
    """An offset of a group. `leader_epoch` and `expire_timestamp_ms` may be unknown. `record_offset` is -1 until the offset is written."""

    committed_offset: int
    leader_epoch: int | None
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int | None = None
    topic_id: bytes = ZERO_UUID
    record_offset: int = -1

    @classmethod
    def from_record(cls, record_offset: int, value: OffsetCommitValue) -> OffsetAndMetadata:
        """Return the offset in a record."""
        # A load reads millions of offsets, and calling the class would take three times as long.
        fields = (
            value.offset,
            None if value.leader_epoch == -1 else value.leader_epoch,
            value.metadata,
            value.commit_timestamp,
            None if value.expire_timestamp == -1 else value.expire_timestamp,
            value.topic_id,
            record_offset,
        )
        return _new(cls, fields)  # type: ignore[no-any-return]

    def is_expired(self, base_timestamp_ms: int, now_ms: int, retention_ms: int) -> bool:
        """Whether the offset has expired. Without its own expiry time, it expires `retention_ms` after `base_timestamp_ms`."""
        if self.expire_timestamp_ms is not None:
            return now_ms >= self.expire_timestamp_ms
        return now_ms - base_timestamp_ms >= retention_ms


BaseTimestamp = Callable[[OffsetAndMetadata], int]
"""Returns the time from which an offset ages."""


def commit_timestamp(offset: OffsetAndMetadata) -> int:
    """The base timestamp of most groups: the commit time."""
    return offset.commit_timestamp_ms
