"""Hostile requests: random ones of every API, and valid ones with changed bytes."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator

from kops.protocol import api_keys
from kops.protocol.api_keys import Listener
from kops.protocol.declaration import Message
from kops.protocol.registry import request_class


def frame(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


def requests(listener: Listener = Listener.BROKER) -> Iterator[tuple[type[Message], int]]:
    """Yield all requests that a listener takes, with their versions."""
    for api in api_keys.API_KEYS:
        if listener in api.listeners:
            for version in api.versions:
                yield request_class(api), version


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the bytes with a few of them changed, cut, doubled or moved."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        position = rng.randrange(len(changed) or 1)
        kind = rng.randrange(5)
        if kind == 0:
            changed[position : position + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in changed[position : position + 1])
        elif kind == 1:
            changed[position : position + 1] = rng.randbytes(rng.randrange(5))
        elif kind == 2:
            changed[position : position + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"))
        elif kind == 3:
            changed = changed[:position] or changed
        else:
            changed += changed[position:]
    return bytes(changed)
