"""Reads the partitions of an export of `kops log export` as batches, without making segments of them.

An export may be large, so it is read line by line. Its first reading finds where the lines of each partition are; it must therefore be a
file. The lines are described in `kops.forensics.lines.exporting`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from kops.errors import DecodeError, KopsError
from kops.forensics.dump.documents import RECORD
from kops.forensics.dump.files import DAMAGE
from kops.forensics.lines.exporting import (
    BATCH,
    END,
    EPOCH,
    MALFORMED,
    PARTITION,
    PARTITION_V1,
    SEGMENT,
    Document,
    lack_of_records,
    rebuild_batch,
)
from kops.forensics.lines.importing import parse_lines
from kops.records import Batch
from kops.storage.formats.names import parse_partition_dir

__all__ = ["ExportedPartition", "exported_partitions"]

_MARKS: Final = tuple(schema.encode() for schema in (PARTITION, PARTITION_V1, END))


@dataclass(frozen=True, slots=True)
class ExportedPartition:
    """A partition of an export: bytes `start` to `end` of the file. `line` is the number of lines before them. `log_start_offset` is 0 if
    the export does not say it."""

    file: str
    name: str
    topic: str
    partition: int
    start: int
    end: int
    line: int
    log_start_offset: int = 0

    def batches(self, on_bytes: Callable[[int], object] | None = None) -> Iterator[Batch | str]:
        """Yield the batches, and in words the damage that is not in the export.

        Raises DecodeError (`export-malformed`) with the number of the wrong line, OSError.
        """
        head: Document | None = None
        records: list[Document] = []
        number = self.line
        for place, document in parse_lines(self._lines(), self.file, on_bytes, first=self.line + 1):
            number = place
            schema = document.get("schema")
            if schema == RECORD and head is not None:
                records.append(document)
                continue
            if head is not None:
                yield self._batch(head, records, number - 1)
            head, records = (document, []) if schema == BATCH else (None, [])
            if schema == DAMAGE:
                yield f"{document.get('file')}:{document.get('position')}: {document.get('reason')}"
            elif schema not in (BATCH, END, EPOCH, PARTITION, PARTITION_V1, SEGMENT):
                raise DecodeError(f"line {number}: {_words(schema)}", code=MALFORMED, file=self.file)
        if head is not None:
            yield self._batch(head, records, number)

    def _lines(self) -> Iterator[bytes]:
        with open(self.file, "rb") as file:
            file.seek(self.start)
            left = self.end - self.start
            while left > 0 and (line := file.readline()):
                left -= len(line)
                yield line

    def _batch(self, head: Document, records: list[Document], number: int) -> Batch:
        lack = lack_of_records(head, len(records))
        if lack is not None:
            raise DecodeError(f"line {number - len(records)}: {lack}", code=MALFORMED, file=self.file)
        try:
            batch = Batch(rebuild_batch(head, records))
        except KeyError as error:
            raise DecodeError(f"the batch that ends with line {number} has no {error}", code=MALFORMED, file=self.file) from error
        except (TypeError, ValueError, OverflowError, KopsError) as error:
            raise DecodeError(f"the batch that ends with line {number} is wrong: {error}", code=MALFORMED, file=self.file) from error
        return batch


def _words(schema: object) -> str:
    return "a record without a batch" if schema == RECORD else f"{schema} is not a line of an export"


def exported_partitions(file: str) -> list[ExportedPartition]:
    """Return the partitions of an export in its order.

    Raises DecodeError (`export-malformed`) if the file does not begin with a partition or is cut, OSError.
    """
    begins: list[tuple[Document, int, int]] = []
    at = 0
    is_empty, needs_end = True, False
    with open(file, "rb") as lines:
        for number, line in enumerate(lines):
            # Only a line that names the schema can begin a partition or end an export; the other ones need no decoding here.
            if is_empty or any(mark in line for mark in _MARKS):
                for _, document in parse_lines([line], file, first=number + 1):
                    schema = document.get("schema")
                    if schema in (PARTITION, PARTITION_V1):
                        begins.append((document, at, number))
                        needs_end = needs_end or schema == PARTITION
                    elif schema == END:
                        needs_end = False
                    elif is_empty:
                        reason = f"line {number + 1} begins no partition; an export of kops log export begins with one"
                        raise DecodeError(reason, code=MALFORMED, file=file)
                    is_empty = False
            at += len(line)
    if is_empty:
        raise DecodeError("is empty, so it is no export of kops log export", code=MALFORMED, file=file)
    if needs_end:
        reason = f"the export is cut: its last line ({END}) is missing; kops log import makes a log of what is there"
        raise DecodeError(reason, code=MALFORMED, file=file)
    ends = [*(start for _, start, _ in begins[1:]), at]
    return [_partition(file, document, start, end, line) for (document, start, line), end in zip(begins, ends, strict=True)]


def _partition(file: str, document: Document, start: int, end: int, line: int) -> ExportedPartition:
    name, log_start = str(document.get("name")), document.get("logStartOffset") or 0
    wrong = DecodeError(f"line {line + 1}: {name!r} is not the name of a partition (topic-number)", code=MALFORMED, file=file)
    try:
        parsed = parse_partition_dir(name)
    except DecodeError as error:
        raise wrong from error
    if parsed.state or parsed.partition < 0:
        raise wrong
    if type(log_start) is not int:
        raise DecodeError(f"line {line + 1}: a log can't start at offset {log_start!r}", code=MALFORMED, file=file)
    return ExportedPartition(file, name, parsed.topic, parsed.partition, start, end, line, log_start)
