# mypy: disable-error-code="unused-ignore"
"""Prints the records of a v2 batch as Kafka's dump tool does: one typed source, interpreted, or compiled by mypyc if there is a compiler.

Formats: the record layout of Kafka's `DefaultRecord.readFrom`, the lines of `DumpLogSegments.dumpBatchRecords`. A record that can't be read
ends the batch, and `reason` says why. The lines before it stay, as in Kafka, which reads an uncompressed batch record by record.

There are two ways through a batch, chosen on the way. The general one is `kops.records._hot.decode_records`. If neighbours have the same
layout (the same sizes of key and value and the same widths of the varints, so the same number of bytes), the whole run is checked column by
column with strided slices and unpacked by `struct`. So even the interpreter handles a record in a few hundred nanoseconds.
"""

from __future__ import annotations

import struct
from itertools import repeat
from typing import Any, Final

from kops.config.values.java import JAVA_UTF8
from kops.records import _hot

MIN_RUN: Final = 8
MAX_LAYOUTS: Final = 1024
FIRST_CHUNK: Final = 16
MAX_CHUNK: Final = 1 << 20
INT_MAX: Final = 0x7FFFFFFF
LONG_LIMIT: Final = 1 << 63

HIGH: Final = bytes(128) + b"\x01" * 128
LOW: Final = b"\x01" * 128 + bytes(128)

FIELD: Final = ("", "B", "H", "HB")
"""`struct` codes of a varint of 1, 2 and 3 bytes."""

UNREADABLE: Final = "a record can't be read"
LEFT_OVER: Final = "bytes are left after the last record"


def is_compiled() -> bool:
    """Whether this module was compiled by mypyc."""
    return not __file__.endswith(".py")


def _two_byte_table() -> list[int]:
    """The zigzag-decoded values of the first two bytes of a varint, indexed by them as a big-endian number. A third byte may follow."""
    table = [0] * 65536
    for low in range(128):
        half = low >> 1
        row = range(-half - 1, -half - 1 - 64 * 128, -64) if low & 1 else range(half, half + 64 * 128, 64)
        table[(128 + low) << 8 : (129 + low) << 8] = [*row, *row]
    return table


ONE_BYTE: Final = [(raw >> 1) ^ -(raw & 1) for raw in range(128)]
TWO_BYTES: Final[list[int]] = []


def java_text(data: bytes) -> bytes:
    """UTF-8 as Java prints it after decoding: malformed sequences become U+FFFD. Returns the same object if nothing is malformed.

    A whole line, or several, may be given at once: the text between two payloads is ASCII, which ends every malformed sequence.
    """
    if data.isascii():
        return data
    try:
        data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("utf-8", JAVA_UTF8).encode("utf-8")
    return data


class RecordLines:
    """The record lines of one file. `batch` gives those of one batch. State that Kafka keeps from record to record is kept between calls.

    `previous` is the offset of the last record (-1 before the first), `gaps` maps an offset to the one that followed it without being its
    successor. `count` is how many records the last `batch` gave, `reason` why it stopped before the end, else "".
    """

    def __init__(self, contents: bool, metadata: bool) -> None:
        self.contents = contents
        self.metadata = metadata
        self.previous = -1
        self.gaps: dict[int, int] = {}
        self.count = 0
        self.reason = ""
        self._label = b""
        self._type = ""
        self._sequenced = False
        self._stamped = False
        self._templates: list[bytes] = []
        self._layouts: dict[tuple[int, ...], tuple[struct.Struct, bytes]] = {}
        self._chunk = FIRST_CHUNK
        self._base_offset = 0
        self._base_timestamp = 0
        self._base_sequence = -1

    def batch(
        self,
        body: bytes,
        start: int,
        end: int,
        count: int,
        base_offset: int,
        timestamp: int,
        stamped: bool,
        base_sequence: int,
        label: bytes,
    ) -> bytes:
        """The lines of the `count` records in `body[start:end]`.

        `label` names the timestamp's type; `timestamp` is the base timestamp, or with `stamped` that of every record (LogAppendTime).
        """
        sequenced = base_sequence >= 0
        if label != self._label or sequenced != self._sequenced or stamped != self._stamped or not self._templates:
            self._label, self._sequenced, self._stamped = label, sequenced, stamped
            self._type = label.decode()
            self._templates = self._make_templates()
            self._layouts = {}
        self._base_offset, self._base_timestamp, self._base_sequence = base_offset, timestamp, base_sequence
        self.reason = ""
        lines: list[bytes] = []
        if count:
            position = self._records(lines, body, start, end, count)
            if position < 0:
                self.reason = UNREADABLE
            elif position != end:  # Kafka notices this while it reads the last record, so it does not show that record.
                self.reason = LEFT_OVER
                del lines[-1]
        self.count = len(lines)
        return java_text(b"".join(lines))

    def _records(self, lines: list[bytes], body: bytes, position: int, end: int, count: int) -> int:
        """Append a line for each record. Returns the position after the last one, or a negative number if one can't be read."""
        left = count
        chunk = self._chunk
        while left:
            taken = 0
            if left >= MIN_RUN and self.metadata:
                taken, position = self._run(lines, body, position, end, left)
                left -= taken
                chunk = FIRST_CHUNK if taken else min(chunk * 2, MAX_CHUNK)
            if not taken:
                rows: list[_hot.Row] = []
                wanted = min(left, chunk)
                position = _hot.decode_records(
                    body, position, end, wanted, self._base_offset, self._base_timestamp, self._type, self._base_sequence, None, rows
                )
                self._lines(lines, rows)
                if position < 0:
                    return position
                left -= wanted
        self._chunk = chunk
        return position

    def _lines(self, lines: list[bytes], rows: list[_hot.Row]) -> None:
        """Append a line for each row, and check the offsets."""
        expected = self.previous + 1
        plain = self.metadata and self.contents and not self._sequenced
        neither, only_value, only_key, both = self._templates[:4]
        for offset, timestamp, _, key, value, headers, sequence, _, _, _ in rows:
            if offset != expected:
                self.gaps[expected - 1] = offset
            expected = offset + 1
            if headers or not plain:
                lines.append(self._line(offset, timestamp, sequence, key, value, headers))
            elif key is None:
                if value is None:
                    lines.append(neither % (offset, timestamp))
                else:
                    lines.append(only_value % (offset, timestamp, len(value), value))
            elif value is None:
                lines.append(only_key % (offset, timestamp, len(key), key))
            else:
                lines.append(both % (offset, timestamp, len(key), len(value), key, value))
        self.previous = expected - 1

    def _line(
        self,
        offset: int,
        timestamp: int,
        sequence: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[_hot.Header],
    ) -> bytes:
        """Append one line, for a record without a template."""
        line = b""
        if self.metadata:
            sizes = (-1 if key is None else len(key), -1 if value is None else len(value))
            if self._sequenced:
                line = self._templates[4] % (offset, timestamp, *sizes, sequence)
            else:
                line = self._templates[4] % (offset, timestamp, *sizes)
            line += b",".join([name.encode() if isinstance(name, str) else name for name, _ in headers]) + b"]"
        if self.contents:
            space = b" " if self.metadata else b"| "
            if key is not None:
                line += space + b"key: " + key
                space = b" "
            if value is not None:
                line += space + b"payload: " + value
        return line + b"\n"

    def _head(self, sizes: bytes) -> bytes:
        """The first part of a line; `sizes` is keySize and valueSize."""
        sequence = b"%d" if self._sequenced else b"-1"
        return b"| offset: %d " + self._label + b": %d " + sizes + b" sequence: " + sequence + b" headerKeys: ["

    def _make_templates(self) -> list[bytes]:
        """Lines for records without headers, by (key present) * 2 + (value present), and the head of a line for all others."""
        out = []
        for key in (False, True):
            for value in (False, True):
                sizes = b"keySize: " + (b"%d" if key else b"-1") + b" valueSize: " + (b"%d" if value else b"-1")
                out.append(self._head(sizes) + b"]" + (b" key: %b" if key else b"") + (b" payload: %b" if value else b"") + b"\n")
        out.append(self._head(b"keySize: %d valueSize: %d"))
        return out

    def _run(self, lines: list[bytes], body: bytes, at: int, end: int, most: int) -> tuple[int, int]:
        """Take the records at `at` that have one layout: (how many, position after them). (0, `at`): too few, read them one by one."""
        marks = _marks(body, at, end)
        if marks is None or not -LONG_LIMIT // 2 < self._base_timestamp < LONG_LIMIT // 2:
            return 0, at
        stride = marks[-1]
        count = min(most, (end - at) // stride)
        count = _same_layout(body, at, marks, count) if count >= MIN_RUN else 0
        if count < MIN_RUN:
            return 0, at
        stop = at + count * stride
        packed, template = self._layout(marks)
        fields = list(zip(*packed.iter_unpack(body[at:stop]), strict=True))
        times: Any = repeat(self._base_timestamp, count)
        used = 0
        if not self._stamped:
            deltas, used = _column(fields, 0, marks[2] - marks[1])
            base = self._base_timestamp
            times = [base + delta for delta in deltas]
        deltas, used = _column(fields, used, marks[3] - marks[2])
        step = deltas[0]
        if step < 0 or deltas != list(range(step, step + count)) or self._base_offset + step + count >= LONG_LIMIT:
            return 0, at
        offset = self._base_offset + step
        columns: list[Any] = [range(offset, offset + count), times]
        if self._sequenced:
            first = self._base_sequence + step
            if first + count > INT_MAX:
                return 0, at
            columns.append(range(first, first + count))
        if offset != self.previous + 1:
            self.gaps[self.previous] = offset
        self.previous = offset + count - 1
        lines.extend(map(template.__mod__, zip(*columns, *fields[used:], strict=True)))
        return count, stop

    def _layout(self, marks: tuple[int, ...]) -> tuple[struct.Struct, bytes]:
        """Return how to unpack a record of this layout, and the line for it."""
        known = self._layouts.get(marks)
        if known is not None:
            return known
        _, time_at, offset_at, key_at, key_start, value_at, value_start, key_size, value_size, _ = marks
        code = f">{time_at}x"
        code += f"{offset_at - time_at}x" if self._stamped else FIELD[offset_at - time_at]
        code += FIELD[key_at - offset_at] + f"{key_start - key_at}x"
        letter = "s" if self.contents else "x"
        code += f"{key_size}{letter}" if key_size >= 0 else ""
        code += f"{value_start - value_at}x"
        code += f"{value_size}{letter}" if value_size >= 0 else ""
        line = self._head(b"keySize: %d valueSize: %d" % (key_size, value_size)) + b"]"
        if self.contents:
            line += (b" key: %b" if key_size >= 0 else b"") + (b" payload: %b" if value_size >= 0 else b"")
        if len(self._layouts) >= MAX_LAYOUTS:
            self._layouts = {}
        made = (struct.Struct(code + "x"), line + b"\n")
        self._layouts[marks] = made
        return made


def _marks(body: bytes, at: int, end: int) -> tuple[int, ...] | None:
    """The positions of the parts of the record at `at`, relative to it; None if the record has headers or is not a plain one.

    (end of its length, timestamp, offset, size of the key, key, size of the value, value, size of the key, size of the value, end)
    """
    try:
        size, size_end = _hot.read_varint(body, at)
        time_at = size_end + 1
        offset_at = _hot.read_varlong(body, time_at)[1]
        key_at = _hot.read_varint(body, offset_at)[1]
        key_size, key_start = _hot.read_varint(body, key_at)
        value_at = key_start + max(key_size, 0)
        value_size, value_start = _hot.read_varint(body, value_at)
        stop = value_start + max(value_size, 0)
        if size_end < 0 or offset_at < 0 or key_at < 0 or key_start < 0 or value_start < 0 or body[stop] or stop + 1 > end:
            return None
    except IndexError:
        return None
    if stop + 1 != size_end + size or offset_at - time_at > 3 or key_at - offset_at > 3:
        return None
    places = (size_end, time_at, offset_at, key_at, key_start, value_at, value_start)
    return (*[place - at for place in places], max(key_size, -1), max(value_size, -1), stop + 1 - at)


def _same_layout(body: bytes, at: int, marks: tuple[int, ...], count: int) -> int:
    """How many of the `count` records at `at` have the layout of the first one; less than MIN_RUN may be any small number."""
    size_end, time_at, offset_at, key_at, key_start, value_at, value_start, _, _, stride = marks
    for column in (*range(size_end), *range(key_at, key_start), *range(value_at, value_start), stride - 1):
        count = _prefix(body[at + column : at + count * stride : stride], body[at + column : at + column + 1])
        if count < MIN_RUN:
            return 0
    for column in (*range(time_at, offset_at - 1), *range(offset_at, key_at - 1)):
        count = _prefix(body[at + column : at + count * stride : stride].translate(HIGH), b"\x01")
    for column in (offset_at - 1, key_at - 1):
        count = _prefix(body[at + column : at + count * stride : stride].translate(LOW), b"\x01")
    return count


def largest_delta(body: bytes, start: int, end: int, count: int) -> int | None:
    """The largest timestamp delta of the `count` records in `body[start:end]`; None if the range is not exactly these records."""
    most = -LONG_LIMIT
    position, left, chunk = start, count, FIRST_CHUNK
    while left:
        marks = _marks(body, position, end) if left >= MIN_RUN else None
        run = 0
        if marks is not None:
            run = min(left, (end - position) // marks[-1])
            run = _same_layout(body, position, marks, run) if run >= MIN_RUN else 0
        if marks is not None and run >= MIN_RUN:
            stop = position + run * marks[-1]
            packed = struct.Struct(f">{marks[1]}x{FIELD[marks[2] - marks[1]]}{marks[-1] - marks[2]}x")
            deltas, _ = _column(list(zip(*packed.iter_unpack(body[position:stop]), strict=True)), 0, marks[2] - marks[1])
            most = max(most, *deltas)
            position, left, chunk = stop, left - run, FIRST_CHUNK
            continue
        wanted = min(left, chunk)
        status, where, _, delta, _, _ = _hot.validate_records(body, position, end, wanted)
        if status == _hot.UNREADABLE:
            return None
        position = where if status == _hot.LEFT_OVER else end
        most = max(most, delta)
        left -= wanted
        chunk = min(chunk * 2, MAX_CHUNK)
    return most if position == end else None


def _prefix(column: bytes, wanted: bytes) -> int:
    """How many bytes at the beginning of the column are the wanted one."""
    return len(column) - len(column.lstrip(wanted))


def _column(fields: list[tuple[Any, ...]], index: int, width: int) -> tuple[list[int], int]:
    """The zigzag-decoded values of a varint column that begins with field `index`, and the index of the next field."""
    raw = fields[index]
    if width == 1:
        return list(map(ONE_BYTE.__getitem__, raw)), index + 1
    if not TWO_BYTES:
        TWO_BYTES.extend(_two_byte_table())
    low = map(TWO_BYTES.__getitem__, raw)
    if width == 2:
        return list(low), index + 1
    return [
        value + (high << 13) if value >= 0 else value - (high << 13) for value, high in zip(low, fields[index + 1], strict=True)
    ], index + 2
