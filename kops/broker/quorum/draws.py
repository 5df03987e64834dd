"""Random numbers and ids from the operating system, for the parts that take their randomness as an argument (Kafka: java.util.Random,
Uuid.randomUuid)."""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING

from kops.metadata.directory_id import is_reserved
from kops.storage.formats.kafka_uuid import uuid_text

if TYPE_CHECKING:
    from collections.abc import Collection


class RandomDraws:
    """Unpredictable numbers and ids."""

    def __init__(self) -> None:
        self._random = random.SystemRandom()

    def next_int(self, bound: int) -> int:
        """A number from 0 to `bound` - 1."""
        return self._random.randrange(bound)

    def uuid(self) -> bytes:
        """See `random_uuid`."""
        return random_uuid()


def random_uuid(taken: Collection[bytes] = ()) -> bytes:
    """16 bytes that are not a reserved id and not one of `taken`. Their text does not begin with a dash, because a command would read that
    as an option."""
    while True:
        data = bytearray(os.urandom(16))
        data[6] = data[6] & 0x0F | 0x40
        data[8] = data[8] & 0x3F | 0x80
        uuid = bytes(data)
        if not is_reserved(uuid) and uuid not in taken and not uuid_text(uuid).startswith("-"):
            return uuid
