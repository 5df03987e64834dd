"""The compiled loops of carve and their source find the same headers and take the same batches. Plain readers say which those are."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kops.forensics.carve import search
from kops.forensics.carve.search import Look
from kops.records import BatchBuilder, crc32c
from tests.support.hot import hot, variants
from tests.support.images import some_log

NAME = "kops.forensics.carve._hot_search"
CODECS = {low for low in range(0x80) if low & 7 <= 4}


def found(loop: Any, data: bytes, look: Look, start: int, stop: int, known: int = -1) -> Iterator[int]:
    """Yield the places that the loop finds."""
    index, known = loop.next_header(data, start, stop, look.oldest, look.large_offsets, known)
    while index >= 0:
        yield index
        index, known = loop.next_header(data, index + 1, stop, look.oldest, look.large_offsets, known)


def is_header(data: bytes, at: int, look: Look) -> bool:
    """Decide the same slowly, from all fields at once."""
    room = len(data) - at
    if room < 26:
        return False
    base, size, _, magic = struct.unpack_from(">qiIb", data, at)
    size += 12
    is_small = data[at : at + 2] == b"\0\0"
    if magic == 2:
        if room < 61 or size < 61 or not (is_small or (look.large_offsets and base >= 0)):
            return False
        _, _, _, _, _, attributes, delta, _, latest, producer, epoch, sequence, count = struct.unpack_from(">qiibIhiqqqhii", data, at)
        if attributes not in CODECS or not 0 <= count <= delta + 1 or min(latest, producer, epoch, sequence) < -1:
            return False
        if not count:
            return bool(size == 61)
        return bool(attributes & 7) or size >= 61 + 7 * count
    if magic not in (0, 1) or magic < look.oldest or not is_small or not 26 <= size <= 1 << 27:
        return False
    if data[at + 17] not in (0, 1, 2, 3, 8, 9, 10, 11):
        return False
    fields = data[at + (26 if magic else 18) :]
    left = size - (26 if magic else 18) - 8
    key = int.from_bytes(fields[:4], "big", signed=True)
    if left < 0 or len(fields) < 4 or not -1 <= key <= min(left, (1 << 20) - 1):
        return left >= 0 and len(fields) < 4
    value = fields[4 + max(key, 0) : 8 + max(key, 0)]
    return (
        len(value) < 4
        or (max(key, 0) + max(int.from_bytes(value, "big", signed=True), 0) == left and value < b"\x80")
        or (value == b"\xff\xff\xff\xff" and max(key, 0) == left)
    )


def bytes_like_a_disk(rng: random.Random) -> bytes:
    """Return batches of every format, some of them damaged, between zeroes, numbers, text and noise."""
    parts: list[bytes] = []
    for _ in range(rng.randrange(3, 9)):
        log = bytearray(some_log(rng.choice((0, 77, 1 << 33, 1 << 50)), rng.randrange(1, 4), magic=rng.choice((0, 1, 2, 2))))
        for _ in range(rng.randrange(3)):
            log[rng.randrange(len(log))] = rng.choice((0, 1, 2, 255, rng.randrange(256)))
        parts.append(bytes(log))
        kind, size = rng.randrange(5), rng.choice((0, 1, 11, 30, 255, 256, 257, 700, 5000))
        numbers = struct.pack(f"<{size // 4}i", *(rng.choice((0, 0, 1, 2, 300, -1)) for _ in range(size // 4)))
        parts.append((bytes(size), rng.randbytes(size), b"text " * (size // 5), numbers, b"\xff" * size)[kind])
    return b"".join(parts)


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("look", [Look(), Look(1), Look(2), Look(0, True), Look(2, True)], ids=str)
def test_headers_are_found_where_they_are(variant: str, look: Look) -> None:
    loop = hot(NAME, variant)
    rng = random.Random(f"{look}")
    headers = 0
    for _ in range(4):
        data = bytes_like_a_disk(rng)
        start, stop = rng.randrange(40), len(data) - rng.randrange(90)
        expected = [at for at in range(start, stop) if is_header(data, at, look)]
        assert list(found(loop, data, look, start, stop)) == expected
        headers += len(expected)
    assert headers > 5


@pytest.mark.parametrize("variant", variants())
def test_headers_of_every_kind_at_every_place(variant: str) -> None:
    """Eight places are compared at once. So a header begins at each of eight, with the smallest and largest values that it may have."""
    loop = hot(NAME, variant)
    kinds = {"v2": some_log(3, 1), "v2 at the highest offset": some_log((1 << 48) - 1, 1), "v1": some_log(3, 1, magic=1)}
    for key in (None, b"", bytes(255), bytes(256), bytes(1 << 16), bytes((1 << 20) - 1)):
        for value in (None, b"", bytes(300)):
            room = len(key or b"") + len(value or b"")
            message = struct.pack(">qiIbb", 7, 14 + room, 0xFFFFFFFF, 0, 11)
            for field in (key, value):
                message += struct.pack(">i", -1 if field is None else len(field)) + (field or b"")
            kinds[f"v0 with {key and len(key)} and {value and len(value)}"] = message
    for name, header in kinds.items():
        for at in range(9):
            data = b"\xff" * at + header[: 1 << 12] + bytes(90)
            assert next(found(loop, data, Look(), 0, len(data)), None) == at, name
            assert list(found(loop, data, Look(), at + 1, len(data)))[:1] != [at]
    too_large = struct.pack(">qiIbbi", 7, 14 + (1 << 20), 0, 0, 0, 1 << 20) + bytes(90)
    assert list(found(loop, too_large, Look(), 0, 8)) == []


@pytest.mark.parametrize("variant", variants())
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_contents_tell_that_a_large_batch_is_none(codec: str, variant: str) -> None:
    loop = hot(NAME, variant)
    for count in (1, 3, 150):
        builder = BatchBuilder(codec=codec)
        for number in range(count):
            builder.append(number, b"key", b"value" * 30)
        batch = builder.build()
        for stop in (62, 64, 66, 100, len(batch)):
            assert loop.contents_fit(batch[:stop], 0, len(batch)), "what is there of an intact batch fits"
        other = batch[:61] + b"\x01\x02\x03\x04" + batch[65:]
        assert loop.contents_fit(other, 0, len(batch)) == (codec == "snappy")
        if codec == "none" and count < 100:
            assert not loop.contents_fit(batch, 0, len(batch) + 1) and not loop.contents_fit(batch, 0, len(batch) - 1)


@pytest.mark.parametrize("zeroes", [*range(9), 255, 256, 257, 258, 4095, 4096, 4352, 9000])
def test_a_header_right_after_zeroes(zeroes: int) -> None:
    """Its first bytes are zeroes themselves."""
    batch = some_log(0, 1)
    for before in (b"", b"\x07", b"\x07\x07"):
        data = before + bytes(zeroes) + batch + bytes(600)
        at = len(before) + zeroes
        for variant in variants():
            for look in (Look(), Look(0, True)):
                assert at in list(found(hot(NAME, variant), data, look, 0, len(data)))


@pytest.mark.parametrize("look", [Look(), Look(1), Look(2), Look(0, True)], ids=str)
def test_without_the_compiled_loop_nothing_intact_is_missed(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    """The expressions do not look for a few headers that are damaged for certain."""
    monkeypatch.setattr(search, "is_compiled", lambda: False)
    rng = random.Random(f"expressions {look}")
    for _ in range(4):
        data = bytes_like_a_disk(rng)
        by_loop = set(found(hot(NAME, "interpreted"), data, look, 0, len(data)))
        by_expressions = list(search.headers(data, 0, len(data), look))
        assert by_expressions == sorted(set(by_expressions)) and set(by_expressions) <= by_loop
        for at in by_loop - set(by_expressions):
            size = int.from_bytes(data[at + 8 : at + 12], "big") + 12
            crc = int.from_bytes(data[at + 17 : at + 21], "big")
            assert data[at + 16] < 2 or at + size > len(data) or crc32c(data[at + 21 : at + size]) != crc


def test_a_checksum_that_ends_in_zeroes_hides_no_header(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside an intact header of v0, other places look like headers, too."""
    monkeypatch.setattr(search, "is_compiled", lambda: False)
    message = bytes.fromhex("00000000000000070000002144758f000000000000056b65792d320000000e76616c7565206f66203720d0d290")
    for before in range(9):
        data = b"\x74\x80" + bytes(before) + message + bytes(90)
        assert before + 2 in list(search.headers(data, 0, len(data)))


@pytest.mark.parametrize("variant", variants())
def test_batches_that_were_taken_are_no_result(variant: str) -> None:
    data = some_log(0, 1, value=some_log(5, 2)) + some_log(3, 7, value=bytes(100) + some_log(9, 1))
    all_of_it = list(found(hot(NAME, variant), data, Look(2), 0, len(data)))
    outer = [0]
    while (behind := outer[-1] + int.from_bytes(data[outer[-1] + 8 : outer[-1] + 12], "big") + 12) < len(data):
        outer.append(behind)
    assert list(found(hot(NAME, variant), data, Look(2), 0, len(data), 0)) == [at for at in all_of_it if at not in outer]
    assert hot(NAME, variant).known_from(data, 0, outer[3] - 1) == outer[3] and hot(NAME, variant).known_from(data, -1, 5) == -1


def a_batch(base: int, count: int, epoch: int, producer: tuple[int, int, int], last_delta: int | None = None, latest: int = 5) -> bytes:
    """Return an intact batch; `last_delta` leaves offsets out at its end."""
    builder = BatchBuilder(
        base_offset=base, partition_leader_epoch=epoch, producer_id=producer[0], producer_epoch=producer[1], base_sequence=producer[2]
    )
    for _ in range(count):
        builder.append(latest, b"k", b"v")
    batch = bytearray(builder.build())
    if last_delta is not None:
        struct.pack_into(">i", batch, 23, last_delta)
        struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    return bytes(batch)


@pytest.mark.parametrize("variant", variants())
def test_batches_that_follow_are_taken(variant: str) -> None:
    loop = hot(NAME, variant)
    producers: list[tuple[int, int, int, int]] = []
    batches = [
        a_batch(10, 2, 3, (7, 0, 40), latest=9),
        a_batch(12, 1, 3, (7, 32767, 42)),
        a_batch(13, 1, 4, (-1, -1, -1), last_delta=5),
        a_batch(19, 3, 4, (1 << 40, 2, 0)),
        a_batch(22, 1, 4, (1 << 40, 2, 3)),
    ]

    def follow(data: bytes, index: int = 0, last: int = 9, epoch: int = -1) -> Any:
        producers.clear()
        return loop.follow(data, index, last, epoch, 0, -1, crc32c, lambda *each: producers.append(each))

    data = b"##" + b"".join(batches)
    stop, taken, last, epoch, digest, records, latest, misses = follow(data, 2)
    assert (stop, taken, last, epoch, records, latest, misses) == (len(data), 5, 22, 4, 8, 9, True)
    assert producers == [(7, 0, 40, 1), (7, 32767, 42, 0), (1 << 40, 2, 0, 2), (1 << 40, 2, 3, 0)]
    expected = 0
    for base, batch in zip((10, 12, 13, 19, 22), batches, strict=True):
        expected = loop.digest_on(expected, int.from_bytes(batch[17:21], "big"), base)
    assert digest == expected
    damaged = data[:-1] + b"#"
    ends = [
        follow(damaged, 2),
        follow(data[:-1], 2),
        follow(b"".join((*batches[:4], a_batch(23, 1, 4, (-1, -1, -1))))),
        follow(b"".join((*batches[:4], a_batch(22, 1, 3, (-1, -1, -1))))),
    ]
    assert [each[1] for each in ends] == [4] * 4
    assert follow(batches[0], last=8)[1] == 0 and follow(b"")[:2] == (0, 0)
    highest = a_batch((1 << 63) - 2, 1, 0, (-1, -1, -1), last_delta=1)
    assert follow(highest, last=(1 << 63) - 3)[1] == 0, "its last offset is the largest one, so nothing can follow it"
