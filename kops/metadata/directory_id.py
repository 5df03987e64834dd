"""The ids of log directories: the reserved ones, and which count as online (Kafka DirectoryId; KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

MIGRATING: Final = bytes(16)
UNASSIGNED: Final = bytes(15) + b"\x01"
LOST: Final = bytes(15) + b"\x02"
_RESERVED_COUNT: Final = 100


def is_reserved(directory: bytes) -> bool:
    """Whether the id is one of the first hundred, which no directory may have."""
    return directory[:8] == bytes(8) and int.from_bytes(directory[8:], "big", signed=True) < _RESERVED_COUNT


def is_online(directory: bytes, online: Collection[bytes]) -> bool:
    """Whether a replica's directory counts as online where these are its broker's online ones.

    A broker without any registered before directories were (metadata.version 3.7-IV2): it would have stopped had it lost all.
    """
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not online or directory in online)


def uuid_order(uuid: bytes) -> tuple[int, int]:
    """The key by which Kafka sorts Uuids: both halves as signed numbers (Uuid.compareTo)."""
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)
