"""Yields the uncompressed records of a v2 batch in windows of whole records, for batches of any size.

Source: Kafka's `DefaultRecordBatch.StreamRecordIterator` (`streamingIterator`, `skipKeyValueIterator`).

A batch whose records take at most `WINDOW` bytes is one window. So is every uncompressed batch, because its bytes are in memory already. A
larger batch is decompressed as a stream. A record that is larger than a window is either held whole, up to a limit, or shortened: its value
becomes empty and its headers are left out (null stays null).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final, Literal, Protocol

from kops.errors import DecodeError
from kops.records import _hot as hot
from kops.records.compression import NONE, codec_id
from kops.records.streams.messages import MAX_RECORD as MAX_RECORD
from kops.records.streams.pieces import pieces
from kops.records.streams.reader import PieceReader
from kops.records.varint import read_varint, read_varlong, size_of_varint, write_varint

WINDOW: Final = 4 << 20
Holds = Literal["records", "keys", "nulls"]
"""How much of a record larger than a window is kept: all of it, its key, or only whether its key and value are null."""
OVERHEAD: Final = 61

Window = tuple[bytes, int, int, int]
"""(bytes, start, end, count): `bytes[start:end]` has this many records."""


class StoredBatch(Protocol):
    """The attributes of a `Batch` that windows need."""

    attributes: int
    buffer: bytes
    count: int | None
    index: int
    magic: int
    position: int
    size: int


class RecordWindows:
    """The windows of one batch, for one iteration.

    If the batch is one window, that window has all bytes, and the reader must check whether they are `count` records. In a streamed batch,
    each window has exactly the records that it claims. `size` is the uncompressed size of the records read so far. `is_streamed` is True if
    there was more than one window. `are_plain` becomes False if Kafka's builder would write a shortened record with other bytes.
    """

    def __init__(self, batch: StoredBatch, *, max_record_bytes: int = MAX_RECORD, holds: Holds = "records") -> None:
        self.batch = batch
        self.max_record_bytes = max_record_bytes
        self.holds = holds
        self.size = 0
        self.is_streamed = False
        self.are_plain = True
        self._number = 0
        self._front = b""
        self._pieces: Iterator[bytes] = iter(())

    def __iter__(self) -> Iterator[Window]:
        """Yield the windows. Raises DecodeError: `bad-length`, `unknown-codec`, `bad-compression`; for a streamed batch also `bad-records`,
        and `too-large` for a record of more than `max_record_bytes`. The windows before the error are good."""
        window = None if self.is_streamed else self.whole()
        if window is not None:
            yield window
            return
        try:
            yield from self._stream(self._pieces, self._front, self.batch.count or 0)
        except DecodeError as error:
            raise error.at(position=self.batch.position) from None

    def whole(self) -> Window | None:
        """Return the window of a batch that is one window, or None if there are more. Raises the errors of an iteration."""
        batch = self.batch
        end = batch.index + batch.size
        if batch.size < OVERHEAD or end > len(batch.buffer):
            raise self._bad(f"the batch claims {batch.size} bytes", "bad-length")
        codec = batch.attributes & 7
        if codec == NONE:
            self.size = batch.size - OVERHEAD
            return batch.buffer, batch.index + OVERHEAD, end, batch.count or 0
        try:
            stream = pieces(codec_id(codec), memoryview(batch.buffer)[batch.index + OVERHEAD : end], magic=batch.magic)
            data, ended = _gather(stream, b"", WINDOW)
        except DecodeError as error:
            raise error.at(position=batch.position) from None
        if not ended:
            self.is_streamed = True
            self._pieces, self._front = stream, data
            return None
        self.size = len(data)
        return data, 0, len(data), batch.count or 0

    def _stream(self, stream: Iterator[bytes], data: bytes, left: int) -> Iterator[Window]:
        ended = False
        while left:
            stop, read = hot.whole_records(data, 0, len(data), left)
            if read:
                self.size += stop
                self._number += read
                left -= read
                yield data, 0, stop, read
                data = data[stop:]
            if not left:
                break
            needed = _record_size(data)
            if needed > WINDOW and needed > len(data) and self.holds != "records":
                data = yield from self._shortened(stream, data)
                left -= 1
                needed = 0
            elif ended or 0 < needed <= len(data):
                raise self._bad(why_unreadable(data, 0, len(data), self._number))
            elif needed > self.max_record_bytes:
                reason = f"record {self._number} of the batch takes {needed} bytes, the limit is {self.max_record_bytes}"
                raise self._bad(reason, "too-large")
            data, ended = _gather(stream, data, max(WINDOW, needed))
        remaining = PieceReader(stream, data).rest()
        if remaining:
            raise self._bad(f"{remaining} bytes are left after the {self.batch.count} records that the batch claims")

    def _shortened(self, stream: Iterator[bytes], data: bytes) -> Generator[Window, None, bytes]:
        """Yield the record at the front of `data` without its contents; return the bytes after it that are held."""
        reader = PieceReader(stream, data)
        size = reader.varint()
        begin = reader.consumed
        attributes = reader.byte() & 0xFF
        timestamp, offset, key_size = reader.varlong(), reader.varint(), reader.varint()
        key = b""
        if self.holds == "keys":
            key = reader.take(key_size)
        else:
            reader.skip(key_size)
        value_size = reader.varint()
        reader.skip(value_size)
        headers = reader.varint()
        for _ in range(_not_negative(headers)):
            reader.skip(_not_negative(reader.varint()))
            reader.skip(reader.varint())
        found = reader.consumed - begin
        if found != size:
            raise self._bad(f"record {self._number} of the batch claims {size} bytes and its fields take {found}")
        plain = 2 + sum(map(size_of_varint, (timestamp, offset, key_size, value_size))) + max(0, key_size) + max(0, value_size)
        if attributes or headers or plain != size or min(key_size, value_size) < -1 or size_of_varint(size) != begin:
            self.are_plain = False
        short = bytes((attributes,)) + write_varint(timestamp) + write_varint(offset)
        short += write_varint(-1 if key_size < 0 else len(key)) + key + write_varint(-1 if value_size < 0 else 0) + b"\0"
        short = write_varint(len(short)) + short
        self.size += reader.consumed
        self._number += 1
        yield short, 0, len(short), 1
        return reader.data[reader.position :]

    def _bad(self, reason: str, code: str = "bad-records") -> DecodeError:
        return DecodeError(reason, code=code, position=self.batch.position)


def _gather(stream: Iterator[bytes], data: bytes, wanted: int) -> tuple[bytes, bool]:
    """Return (`data` and the next pieces, until they have `wanted` bytes; whether the stream has ended)."""
    parts = [data] if data else []
    size = len(data)
    while size < wanted:
        part = next(stream, None)
        if part is None:
            return parts[0] if len(parts) == 1 else b"".join(parts), True
        parts.append(part)
        size += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts), False


def _record_size(data: bytes) -> int:
    """Return the size of the first record with its length field. Returns 0 if more bytes are needed, and 1 if the length is impossible."""
    try:
        size, position = hot.read_varint(data, 0)
    except IndexError:
        return 0
    return position + size if position > 0 and size >= 0 else 1


def _not_negative(number: int) -> int:
    if number < 0:
        raise DecodeError(f"a record has a negative size or number of headers: {number}", code="bad-records")
    return number


def why_unreadable(data: bytes, position: int, end: int, number: int) -> str:
    """Return a sentence that says why the hot loop could not read the record at `position`."""
    name = f"record {number} of the batch"
    if position >= end:
        return f"{name} is missing: the records end before it"
    try:
        length, position = read_varint(data[:end], position)
        stop = position + length
        if length < 0 or stop > end:
            return f"{name} claims {length} bytes, but only {end - position} are left"
        view = data[:stop]
        _, position = read_varlong(view, position + 1)
        _, position = read_varint(view, position)
        for field in ("key", "value"):
            size, position = read_varint(view, position)
            position += max(0, size)
            if position > stop:
                return f"{name} has a {field} of {size} bytes, which goes beyond its end"
        headers, position = read_varint(view, position)
        if headers < 0 or headers > stop - position:
            return f"{name} claims {headers} headers, but only {stop - position} bytes are left"
        for _ in range(headers):
            size, position = read_varint(view, position)
            if size < 0:
                return f"{name} has a header whose key has {size} bytes"
            position += size
            size, position = read_varint(view, position)
            position += max(0, size)
        if position != stop:
            return f"{name} claims {length} bytes and its fields take {length + position - stop}"
    except (DecodeError, IndexError):
        pass
    return f"{name} has fields that go beyond its end"
