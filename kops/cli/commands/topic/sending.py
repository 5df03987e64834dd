"""Sends the records of `kops topic produce` and collects their outcomes by partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kops.errors import DecodeError, KopsError

if TYPE_CHECKING:
    from kops.cli.inputs.line_source import LineSource
    from kops.client.client import Client
    from kops.client.producer.faces.commands import Outcome
    from kops.records.record import Header


class Job:
    """The sent records and their outcomes, by partition."""

    def __init__(self, client: Client, topic: str, partition: int | None) -> None:
        from kops.client.producer.faces.commands import CommandProducer

        self.producer = CommandProducer(client, on_outcome=self._take)
        self.transaction = self.producer.transaction
        self.topic = topic
        self.partition = partition
        self.rows: dict[int, dict[str, Any]] = {}
        self.failures: dict[str, tuple[KopsError, int]] = {}
        self.lines = 0
        self.sent = 0
        self._done = 0

    def run(self, lines: LineSource, take: Callable[[bytes], object], say: Callable[[str], object]) -> BaseException | None:
        """Send all lines. Returns the exception that ended the run early, if any; raises it if nothing was sent."""
        stopped: BaseException | None = None
        try:
            while not lines.is_over and self.producer.failure is None:
                self.producer.poll(0 if lines.is_readable else 100)
                for line in lines.take() if lines.is_readable else ():
                    self.lines += 1
                    take(line)
        except (KeyboardInterrupt, KopsError, OSError) as error:
            if not self.sent:
                raise
            stopped = error
            if isinstance(error, KeyboardInterrupt) and self.transaction is None:
                say("records that were read are still being written; press Ctrl-C again to stop at once")
        return stopped

    def finish(self, stopped: BaseException | None) -> BaseException | None:
        """Wait for the outcomes of all records. Returns the exception that ended the run early, if any."""
        try:
            self.producer.flush()
        except (KeyboardInterrupt, KopsError) as error:
            stopped = stopped or error
            self.give_up(error if isinstance(error, KopsError) else KopsError("interrupted before the cluster answered"))
        return stopped

    def lose(self, error: KopsError) -> None:
        """Set this outcome for all records: their transaction was not committed, as far as is known."""
        self.rows.clear()
        self.failures = {str(error): (error, self.sent)}

    def give_up(self, error: KopsError) -> None:
        """Set this outcome for all records that have none yet."""
        left = self.sent - self._done
        if left:
            self.failures[str(error)] = error, self.failures.get(str(error), (error, 0))[1] + left
            self._done = self.sent

    def send(self, key: bytes | None, value: bytes | None, headers: list[Header], timestamp: int | None) -> None:
        """Queue a record as soon as there is space for it."""
        self.producer.send(self.topic, key, value, headers, timestamp=timestamp, partition=self.partition)
        self.sent += 1

    def send_document(self, line: bytes, number: int, file: str, encodings: tuple[str, str], headers: list[Header]) -> None:
        """Queue the record of a line of JSON. Raises DecodeError if it is not a record."""
        from kops.forensics.lines.exporting import MALFORMED, content
        from kops.forensics.lines.importing import parse_lines

        for _, document in parse_lines([line], file, first=number):
            try:
                key, value, own = content(document, *encodings)
                timestamp = int(document.get("timestamp", -1))
            except (AttributeError, TypeError, ValueError) as error:
                raise DecodeError(f"line {number} is not a record: {error}", code=MALFORMED, file=file) from error
            if "control" not in document:
                self.send(key, value, own + headers, timestamp if timestamp >= 0 else None)

    def _take(self, outcome: Outcome) -> None:
        """Take the outcome of records."""
        self._done += outcome.records
        if outcome.error is not None:
            error, count = self.failures.get(str(outcome.error), (outcome.error, 0))
            self.failures[str(outcome.error)] = error, count + outcome.records
            return
        assert outcome.partition is not None
        row = self.rows.setdefault(
            outcome.partition,
            {"topic": outcome.topic, "partition": outcome.partition, "records": 0, "first_offset": None, "last_offset": None},
        )
        row["records"] += outcome.records
        if outcome.base_offset >= 0:
            row["first_offset"] = outcome.base_offset if row["first_offset"] is None else row["first_offset"]
            row["last_offset"] = outcome.base_offset + outcome.records - 1
