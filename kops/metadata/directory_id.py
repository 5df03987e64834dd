"""The ids of log directories: which are reserved, and which count as online (Kafka DirectoryId; KIP-858)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

MIGRATING: Final = bytes(16)
UNASSIGNED: Final = bytes(15) + b"\x01"
LOST: Final = bytes(15) + b"\x02"
_RESERVED_COUNT: Final = 100


def is_reserved(directory: bytes) -> bool:
    """Whether the id is one of the first hundred, which are reserved."""
    return directory[:8] == bytes(8) and int.from_bytes(directory[8:], "big", signed=True) < _RESERVED_COUNT


def is_online(directory: bytes, online: Collection[bytes]) -> bool:
    """Whether a replica's directory counts as online if these are its broker's online directories.

    A broker without directories registered before metadata.version 3.7-IV2, and all its directories are online: it stops when it loses the
    last one.
    """
    if directory in (UNASSIGNED, MIGRATING):
        return True
    return directory != LOST and (not online or directory in online)


def uuid_order(uuid: bytes) -> tuple[int, int]:
    """Return the key by which Kafka sorts Uuids: both halves as signed numbers (Uuid.compareTo)."""
    return int.from_bytes(uuid[:8], "big", signed=True), int.from_bytes(uuid[8:], "big", signed=True)
