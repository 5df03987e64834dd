"""Prints the text of Kafka's own dump tool, byte for byte: what `kafka-dump-log` 4.3.0 prints about each file and at the end.

Source: Kafka's `DumpLogSegments`, `FileLogInputStream` and the record classes below it (checksums are shown, and otherwise ignored).
Kafka's tool ends at the first exception. This one reports it and continues with the next batch whose checksum is correct, and then with the
next file. It writes to no file, although Kafka's tool trims indexes and creates missing ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from itertools import chain
from typing import Final

from kops.config.values.java import NumberFormatError, parse_long
from kops.errors import DecodeError
from kops.files import Files
from kops.forensics.dump._hot_dump import LEFT_OVER, RecordLines, java_text
from kops.forensics.dump.control import control_text
from kops.forensics.dump.decoders import decode
from kops.forensics.dump.filters import RecordFilter
from kops.forensics.dump.kafka_index import IndexTexts
from kops.forensics.dump.legacy import crc_ok, delimited, int_at, legacy_messages
from kops.forensics.dump.text import (
    INT_MAX,
    KNOWN_SUFFIXES,
    WINDOW,
    DumpOptions,
    DumpProblem,
    DumpText,
    WatchedFile,
    WindowSource,
    absolute_path,
    base_offset_of,
    java_hash_order,
    java_path,
    last_sequence,
    with_option,
    wrap_long,
)
from kops.records import Batch, Damage, Record, crc32, crc32c, file_batches, scan
from kops.records import decode as records_decode
from kops.records.windows import WINDOW as RECORD_WINDOW
from kops.records.windows import RecordWindows, Window

_CREATE_TIME: Final = b"CreateTime"
_LOG_APPEND_TIME: Final = b"LogAppendTime"
_TIMESTAMP_TYPES: Final = {"NoTimestampType": b"NoTimestampType", "CreateTime": _CREATE_TIME, "LogAppendTime": _LOG_APPEND_TIME}


def batch_head(batch: Batch) -> bytes:
    """The first half of a batch's line, which Kafka prints before it reads the rest of the header."""
    if batch.magic < 2:
        return b"offset: %d" % batch.last_offset
    horizon = batch.delete_horizon_ms
    return (
        b"baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d"
        b" partitionLeaderEpoch: %d isTransactional: %b isControl: %b deleteHorizonMs: %b"
    ) % (
        batch.base_offset,
        wrap_long(batch.last_offset),
        batch.count if batch.count is not None else 0,
        batch.base_sequence,
        last_sequence(batch),
        batch.producer_id,
        batch.producer_epoch,
        batch.partition_leader_epoch,
        _bool(batch.is_transactional),
        _bool(batch.is_control),
        b"OptionalLong.empty" if horizon is None else b"OptionalLong[%d]" % horizon,
    )


def batch_tail(batch: Batch, valid: bool) -> bytes:
    """The second half of a batch's line."""
    return b" position: %d %b: %d size: %d magic: %d compresscodec: %b crc: %d isvalid: %b\n" % (
        batch.position,
        _TIMESTAMP_TYPES[batch.timestamp_type],
        batch.max_timestamp,
        batch.size,
        batch.magic,
        batch.codec.encode(),
        batch.crc,
        _bool(valid),
    )


def _bool(value: bool) -> bytes:
    return b"true" if value else b"false"


def _check_readable(batch: Batch) -> None:
    """Raise DecodeError if not all records of a large compressed batch can be read: Kafka then prints none of them."""
    for error in batch.check():
        if error.code not in ("bad-offsets", "bad-timestamps"):
            raise error


class LogText:
    """The text of one `.log` or `.checkpoint`."""

    def __init__(self, path: str, options: DumpOptions, text: DumpText) -> None:
        self.path = path
        self.options = options
        self.text = text
        self.lines = RecordLines(options.print_data_log, not options.skip_record_metadata)
        self._wanted: set[int] | None = None
        self._file: WatchedFile | None = None

    def problem(self, position: int | None, reason: str, *, ends_kafka: bool = False) -> None:
        """Note a problem."""
        self.text.problems.append(DumpProblem(self.path, position, reason, ends_kafka))

    def heading(self) -> None:
        """Print the line that names the kind of file."""
        name = os.path.basename(self.path)
        try:
            if name == "bootstrap.checkpoint":
                line = b"KRaft bootstrap snapshot\n"
            elif name.endswith(".checkpoint"):
                line = b"Snapshot end offset: %d, epoch: %d\n" % (parse_long(name[:20]), parse_long(name[21:31]))
            else:
                line = b"Log starting offset: %d\n" % base_offset_of(self.path)
        except (NumberFormatError, DecodeError) as error:
            self.problem(None, f"the file's name has no offset: {error}", ends_kafka=True)
            return
        self.text.out(line)

    def dump(self, file: WatchedFile) -> None:
        """Print the file."""
        self.heading()
        self._file = file
        source = WindowSource(file, self.text.on_read)
        size = source.size()
        if size > INT_MAX:
            self.problem(None, f"the segment has {size} bytes, Kafka accepts at most {INT_MAX}", ends_kafka=True)
        end = min(size, self.options.max_bytes)
        position = 0
        batches = file_batches(source, 0, end)
        while True:
            try:
                batch = next(batches, None)
            except DecodeError as error:
                self._header_failed(source, error, end)
                return
            if batch is None or (file.end is not None and batch.end > file.end):
                break
            if not self.batch(batch):
                # A valid checksum confirms the length, so the next batch is where it should be.
                self.go_on(source, batch.end if self._valid(batch) else batch.position, end)
                return
            position = batch.end
        if end > position and self.options.max_bytes == INT_MAX and file.end is None:
            self.text.out(b"Found %d invalid bytes at the end of %b\n" % (end - position, os.fsencode(os.path.basename(self.path))))
            self._trailing(source, position, end)

    def _header_failed(self, source: WindowSource, error: DecodeError, end: int) -> None:
        position = error.position or 0
        self.problem(position, error.reason, ends_kafka=True)
        self.go_on(source, position, end)

    def _trailing(self, source: WindowSource, position: int, end: int) -> None:
        """Report bytes at the end that Kafka's tool does not mention. The text itself stays Kafka's."""
        sound = 0
        for item in scan(source, position, end):
            if isinstance(item, Damage):
                self.problem(item.position, f"{item.length} bytes: {item.reason}")
            else:
                sound += 1
        if sound:
            self.problem(position, f"{sound} intact batches follow, which the other formats show and Kafka's tool does not")

    def go_on(self, source: WindowSource, position: int, end: int) -> None:
        """Print every further batch whose checksum is correct, after the place where Kafka's tool ends."""
        for item in scan(source, position, end):
            if isinstance(item, Damage):
                if item.position > position or item.batch is None:
                    self.problem(item.position, f"{item.length} bytes: {item.reason}")
            else:
                self.batch(item)

    def batch(self, batch: Batch) -> bool:
        """Print a batch's line and its records. Returns False if Kafka's tool ends here."""
        if self.options.filter is not None and not self._passes(batch, self.options.filter):
            return True
        self.text.out(batch_head(batch))
        if batch.magic < 0:
            self.text.out(b"\n")
            self.problem(batch.position, f"unknown magic {batch.magic}", ends_kafka=True)
            return False
        valid = self._valid(batch)
        self.text.out(batch_tail(batch, valid))
        if not valid:
            reason = f"the checksum of the batch is wrong (offsets {batch.base_offset} to {batch.last_offset})"
            self.problem(batch.position, reason)
        if batch.attributes & 7 > 4:
            self.problem(batch.position, f"unknown compression {batch.attributes & 7}", ends_kafka=True)
            return False
        if not self.options.deep:
            return True
        try:
            if batch.magic < 2:
                self._legacy(batch)
            elif batch.is_control or self.options.decodes or self._wanted is not None:
                self._slowly(batch)
            else:
                self._records(batch)
        except DecodeError as error:
            if error.code == "too-large":
                self.problem(batch.position, f"offsets {batch.base_offset} to {batch.last_offset}: {with_option(error)}")
                return True
            self.problem(batch.position, error.reason, ends_kafka=True)
            return False
        return True

    def _valid(self, batch: Batch) -> bool:
        """Whether the checksum is correct. A batch that is too long for memory is read in pieces."""
        if batch.index + batch.size <= len(batch.buffer) or self._file is None:
            return batch.crc_ok
        start = batch.position + (21 if batch.magic > 1 else 16)
        value = 0
        for position in range(start, batch.end, WINDOW):
            piece = self._file.read(position, min(WINDOW, batch.end - position))
            value = crc32c(piece, value) if batch.magic > 1 else crc32(piece, value)
        return value == batch.crc

    def _passes(self, batch: Batch, wanted: RecordFilter) -> bool:
        """Whether the batch is shown. If so, `_wanted` has the records to show (None: all)."""
        if not wanted.batch_may_match(batch):
            return False
        if wanted.of_records:
            try:
                self._wanted = {record.offset for record in batch.iterate(self.options.max_record_bytes) if wanted.record_matches(record)}
            except DecodeError:
                self._wanted = None  # Damage is shown as far as it can be read.
        return self._wanted is None or bool(self._wanted)

    def _shown(self, offset: int) -> bool:
        """Count the record at `offset`. Returns whether to print it."""
        if offset != self.lines.previous + 1:
            self.lines.gaps[self.lines.previous] = offset
        self.lines.previous = offset
        return self._wanted is None or offset in self._wanted

    def _records(self, batch: Batch) -> None:
        """The records of a v2 batch that holds ordinary records."""
        count = batch.count or 0
        if count <= 0:
            if count < 0:
                raise DecodeError(f"the batch claims {count} records")
            return
        stamped = batch.attributes & 8 != 0
        timestamp = batch.max_timestamp if stamped else batch.base_timestamp
        label = _LOG_APPEND_TIME if stamped else _CREATE_TIME
        windows = RecordWindows(batch, max_record_bytes=self.options.max_record_bytes)
        if batch.compressed or batch.end <= batch.position + len(batch.buffer) - batch.index:
            found: Iterable[Window] = windows
        else:  # The length is wrong; the number of records is known only after reading them.
            found = ((batch.buffer, batch.index + 61, len(batch.buffer), count),)
        is_checked = not batch.compressed
        for data, start, end, number in found:
            if windows.is_streamed and not is_checked:
                _check_readable(batch)
                is_checked = True
            lines = self.lines.batch(data, start, end, number, batch.base_offset, timestamp, stamped, batch.base_sequence, label)
            if not self.lines.reason:
                self.text.out(lines)
                continue
            # Kafka reads an uncompressed batch as it prints it, a compressed one before it prints the first record.
            if not batch.compressed:
                self.text.out(lines)
            _, error = records_decode.read_some(batch, RECORD_WINDOW)
            raise error or DecodeError(LEFT_OVER)

    def _slowly(self, batch: Batch) -> None:
        """Print the records of a v2 batch one by one: control records, and records that go through a decoder."""
        parts = records_decode.decoded(batch, RecordWindows(batch, max_record_bytes=self.options.max_record_bytes))
        first = next(parts, ([], None))
        second = next(parts, None)
        if second is not None and batch.compressed:
            _check_readable(batch)
        done = 0
        for records, error in (first,) if second is None else chain((first, second), parts):
            if error is not None and batch.compressed:
                raise error
            done += len(records)
            if error is not None and done == (batch.count or 0):
                records.pop()  # Bytes are left after it, which Kafka notices while it reads the last record.
            self._each(batch, records)
            if error is not None:
                raise error

    def _each(self, batch: Batch, records: list[Record]) -> None:
        label = _TIMESTAMP_TYPES[batch.timestamp_type]
        for record in records:
            if not self._shown(record.offset):
                continue
            line = b""
            if not self.options.skip_record_metadata:
                names = [name.encode() if isinstance(name, str) else java_text(name) for name, _ in record.headers]
                sizes = (_size(record.key), _size(record.value))
                line = b"| offset: %d %b: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%b]" % (
                    *(record.offset, label, record.timestamp),
                    *(*sizes, record.sequence, b",".join(names)),
                )
                if batch.is_control:
                    line = self._with_control(line, record.key, record.value)
            if self.options.print_data_log and not batch.is_control:
                line = self._with_contents(line, batch, record.offset, record.key, record.value)
            self.text.out(line + b"\n")

    def _with_control(self, line: bytes, key: bytes | None, value: bytes | None) -> bytes:
        try:
            return line + control_text(key, value).encode()
        except DecodeError:
            self.text.out(line + b"\n")
            raise

    def _with_contents(self, line: bytes, batch: Batch, offset: int, key: bytes | None, value: bytes | None) -> bytes:
        space = b"| " if self.options.skip_record_metadata else b" "
        try:
            shown_key, shown_value = self._contents(batch, offset, key, value)
        except DecodeError:
            self.text.out(line + b"\n")
            raise
        if shown_key is not None:
            line += space + b"key: " + shown_key
            space = b" "
        return line if shown_value is None else line + space + b"payload: " + shown_value

    def _contents(self, batch: Batch, offset: int, key: bytes | None, value: bytes | None) -> tuple[bytes | None, bytes | None]:
        """Key and value as text."""
        options = self.options
        if options.parser is not None:
            shown = options.parser(offset, key, value)
            if shown.problem is not None:
                self.problem(batch.position, shown.problem)
            return shown.key, shown.value
        shown_key = None if key is None else decode(options.key_decoder, key)
        return shown_key, None if value is None else decode(options.value_decoder, value)

    def _legacy(self, batch: Batch) -> None:
        """Print the records of a v0 or v1 batch: one message, or those inside a compressed one."""
        label = _TIMESTAMP_TYPES[batch.timestamp_type]
        for message, offset, timestamp in legacy_messages(batch, self.options.max_record_bytes):
            if not self._shown(offset):
                continue
            line = b""
            place = 6 if message[4] == 0 else 14
            if not self.options.skip_record_metadata:
                key_size = int_at(message, place)
                value_size = int_at(message, place + 4 + max(key_size, 0))
                crc = int.from_bytes(message[:4], "big")
                line = b"| offset: %d %b: %d keySize: %d valueSize: %d isValid: %b crc: %d" % (
                    *(offset, label, timestamp, key_size, value_size),
                    *(_bool(crc_ok(message)), crc),
                )
            if self.options.print_data_log:
                try:
                    key, place = delimited(message, place)
                    value, _ = delimited(message, place)
                except DecodeError:
                    self.text.out(line + b"\n")
                    raise
                line = self._with_contents(line, batch, offset, key, value)
            self.text.out(line + b"\n")


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


class KafkaDump:
    """One run over some files: `file` prints each, `finish` prints the text at the end."""

    def __init__(self, files: Files, options: DumpOptions, text: DumpText) -> None:
        self.files = files
        self.options = options
        self.text = text
        self._gaps: dict[str, dict[int, int]] = {}
        self._indexes = IndexTexts(files, options, text)

    def file(self, path: str) -> None:
        """Print one file. Raises OSError if it cannot be read; earlier output remains."""
        shown = java_path(path)
        self.text.out(b"Dumping %b\n" % os.fsencode(shown))
        name = os.path.basename(shown)
        suffix = name[name.rfind(".") :] if "." in name else ""
        if suffix in (".log", ".checkpoint"):
            log = LogText(shown, self.options, self.text)
            with self.files.open(path) as file:
                watched = WatchedFile(file)
                log.dump(watched)
            if log.lines.gaps:
                self._gaps.setdefault(absolute_path(shown), {}).update(log.lines.gaps)
            watched.check()
        elif suffix in KNOWN_SUFFIXES:
            self._indexes.file(path, shown, suffix)
        else:
            self.text.err(b"Ignoring unknown file %b\n" % os.fsencode(shown))

    def finish(self) -> None:
        """Print the mismatches and gaps of all files, as Kafka's tool does before it ends."""
        self._indexes.finish()
        for path in java_hash_order(self._gaps):
            self.text.err(b"Non-consecutive offsets in %b\n" % os.fsencode(path))
            for previous, following in sorted(self._gaps[path].items()):
                self.text.err(b"  %d is followed by %d\n" % (previous, following))
