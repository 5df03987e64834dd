"""Offset checkpoints: a text file in each log directory with one offset for each partition.

The files are `recovery-point-offset-checkpoint`, `replication-offset-checkpoint` (high watermarks), `log-start-offset-checkpoint` and
`cleaner-offset-checkpoint`. The first line is `0` (the version), the second the number of entries. Each further line is
`topic partition offset`. Sources: Kafka's CheckpointFile and OffsetCheckpointFile.

A broker reacts differently to two kinds of damage, so each kind has its own error code:

- `checkpoint-malformed` is an IOException in Kafka, and the log directory goes offline. The first or second line is not a number, the
  version is unknown, a line does not have three fields, the number of lines differs from the announced one, or the text is not UTF-8.
- `checkpoint-number` is an unchecked exception in Kafka, and each reader handles it in its own way. A partition or an offset is not a
  number, or the count is negative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from kops.config.values.java import NumberFormatError, parse_int, parse_long, read_lines, split_spaces
from kops.errors import DecodeError
from kops.records.log_offsets import TopicPartition as TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

VERSION: Final = 0
MALFORMED: Final = "checkpoint-malformed"
NUMBER: Final = "checkpoint-number"

T = TypeVar("T")


def read_offset_checkpoint(data: bytes, *, file: str | None = None) -> dict[TopicPartition, int]:
    """Return the offsets. If a partition appears twice, the later line counts. Raises DecodeError, see above."""
    return dict(read_checkpoint(data, _parse_entry, file=file))


def write_offset_checkpoint(offsets: Mapping[TopicPartition, int]) -> bytes:
    """Return the file's bytes, with the partitions in the given order. (A broker writes them in the order of its HashMap.)"""
    return write_checkpoint([f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()])


def read_checkpoint(data: bytes, parse: Callable[[str], T | None], *, file: str | None = None) -> list[T]:
    """Return the entries of any checkpoint (CheckpointFile.read).

    `parse` returns None for a malformed line and raises NumberFormatError for a bad number. An empty file, or one that ends after its
    version, has no entries. Raises DecodeError.
    """
    lines = read_lines(data)
    number = 1
    try:
        line = next(lines, None)
        if line is None:
            return []
        version = _header_number(line, number)
        if version != VERSION:
            raise DecodeError(f"line 1: version {version} is unknown, {VERSION} was expected", code=MALFORMED, file=file)
        number = 2
        line = next(lines, None)
        if line is None:
            return []
        count = _header_number(line, number)
        if count < 0:
            raise DecodeError(f"line 2: a checkpoint file can't have {count} entries", code=NUMBER, file=file)
        entries = []
        for number, line in enumerate(lines, 3):
            entry = parse(line)
            if entry is None:
                raise DecodeError(f"line {number} is malformed: {line[:200]}", code=MALFORMED, file=file)
            entries.append(entry)
    except NumberFormatError as error:
        text = str(error).removeprefix("For input string: ")
        raise DecodeError(f"line {number}: not a number: {text}", code=NUMBER, file=file) from error
    except UnicodeDecodeError as error:
        raise DecodeError(f"after line {number}: not UTF-8 text", code=MALFORMED, file=file) from error
    except DecodeError as error:
        raise error.at(file=file) from error.__cause__
    if len(entries) != count:
        raise DecodeError(f"line 2 announces {count} entries, there are {len(entries)}", code=MALFORMED, file=file)
    return entries


def write_checkpoint(lines: Iterable[str]) -> bytes:
    """Return the file's bytes: version, count, and a line for each entry (CheckpointFile.write)."""
    entries = list(lines)
    return "\n".join((str(VERSION), str(len(entries)), *entries, "")).encode()


def _header_number(line: str, number: int) -> int:
    try:
        return parse_int(line)
    except NumberFormatError as error:
        raise DecodeError(f"line {number} is malformed: {line[:200]}", code=MALFORMED) from error


def _parse_entry(line: str) -> tuple[TopicPartition, int] | None:
    fields = split_spaces(line)
    if len(fields) != 3:
        return None
    return TopicPartition(fields[0], parse_int(fields[1])), parse_long(fields[2])
