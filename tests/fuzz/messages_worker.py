"""Mutates messages of every version and reads them. `test_messages.py` runs this program. It limits its memory and time itself.

    python -m tests.fuzz.messages_worker COUNT SEED

Prints the number of valid messages and the number of invalid ones. Any error other than a DecodeError ends the program with a traceback.
"""

from __future__ import annotations

import random
import resource
import signal
import struct
import sys

from kops.errors import ApiError, DecodeError
from kops.protocol.connections.connection import ServerConnection
from tests.support.requests.messages import all_versions, random_message

MEMORY = 512 << 20
LONGEST_S = 5
EDGES = [bytes.fromhex(text) for text in ("00", "01", "7f", "80", "ff", "7fff", "ffff", "7fffffff", "80000000", "ffffffff", "ffffffff07")]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return the data with one to three places overwritten, cut out or extended."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(out) + 1)
        match rng.randrange(4):
            case 0:
                edge = rng.choice(EDGES)
                out[place : place + len(edge)] = edge
            case 1:
                del out[place : place + rng.randint(1, 8)]
            case 2:
                out[place:place] = rng.choice((rng.randbytes(4), b"\x00" * 2000, b"\x01" * 2000, b"\xff" * 50))
            case _:
                out[place : place + 1] = rng.randbytes(1)
    return bytes(out)


def main(count: int, seed: int) -> None:
    """Read `count` mutated messages, each one alone and requests also as the frame of a connection."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    rng = random.Random(seed)
    versions = all_versions()
    good = bad = 0
    for _ in range(count):
        declared, version = rng.choice(versions)
        data = mutated(random_message(declared, version, rng.randrange(50)).encode(version), rng)
        signal.alarm(LONGEST_S)
        try:
            message, end = declared.read(data, version)
            assert 0 <= end <= len(data)
            repr(message)
            good += 1
        except DecodeError as error:
            assert error.position is not None and 0 <= error.position <= len(data), error
            bad += 1
        if declared.KIND == "request":
            connection = ServerConnection()
            frame = mutated(struct.pack(">hhihB", declared.API_KEY, version, 1, -1, 0) + data, rng)
            connection.receive_data(struct.pack(">i", len(frame)) + frame)
            try:
                connection.next_event()
            except (DecodeError, ApiError):
                bad += 1
    signal.alarm(0)
    print(good, bad)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
