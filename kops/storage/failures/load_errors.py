"""What ends, or steers, the loading of a log: Kafka's exceptions, by name.

The loader's control flow in Kafka runs over exceptions: `LogLoader` catches `InvalidOffsetException` and `IOException` around the recovery
of one segment, `LogSegment.recover` catches `CorruptRecordException` and `InvalidRecordException`, everything else ends the broker's
start (`LogManager.loadLogs`). The classes here are those that are caught somewhere; any other exception is a plain `LoadError` that carries
the class name.
"""

from __future__ import annotations

from typing import ClassVar, Literal, NoReturn

from kops.errors import KopsError

Kind = Literal["log-dir-offline", "broker-does-not-start"]

ERRORS = "org.apache.kafka.common.errors."
ILLEGAL_ARGUMENT = "java.lang.IllegalArgumentException"
ILLEGAL_STATE = "java.lang.IllegalStateException"
INDEX_OUT_OF_BOUNDS = "java.lang.IndexOutOfBoundsException"
KAFKA_EXCEPTION = "org.apache.kafka.common.KafkaException"
NULL_POINTER = "java.lang.NullPointerException"
NUMBER_FORMAT = "java.lang.NumberFormatException"


class LoadError(KopsError):
    """Apache Kafka 4.3 can't load this log.

    `exception` is the Java class that its loader throws, `reason` the exception's message (paths as they were given to the loader), `kind`
    what LogManager makes of it: the log directory goes offline (an I/O error), or the whole broker does not start (anything else).
    """

    java_class: ClassVar[str] = ""

    def __init__(self, reason: str, *, exception: str = "") -> None:
        super().__init__(reason)
        self.exception = exception or self.java_class
        self.reason = reason

    @property
    def kind(self) -> Kind:
        """What the broker does about it (LogManager.loadLogs)."""
        return "broker-does-not-start"

    def __str__(self) -> str:
        return f"{self.exception}: {self.reason}" if self.reason else self.exception


class CorruptRecordError(LoadError):
    """A batch's size or checksum is wrong."""

    java_class = ERRORS + "CorruptRecordException"


class InvalidRecordError(LoadError):
    """A record's contents are wrong."""

    java_class = "org.apache.kafka.common.InvalidRecordException"


class InvalidOffsetError(LoadError):
    """An offset that does not increase was to be written into an index."""

    java_class = ERRORS + "InvalidOffsetException"


class OffsetOutOfRangeError(LoadError):
    """A read outside of the log."""

    java_class = ERRORS + "OffsetOutOfRangeException"


class CorruptIndexError(LoadError):
    """The transaction index does not belong to its segment."""

    java_class = "org.apache.kafka.storage.internals.log.CorruptIndexException"


class CorruptSnapshotError(LoadError):
    """A producer snapshot can't be read; Kafka deletes it and takes the one before."""

    java_class = "org.apache.kafka.storage.internals.log.CorruptSnapshotException"


class StorageIOError(LoadError):
    """An I/O error, or what Kafka reports as one; the log directory goes offline."""

    java_class = "java.io.IOException"

    @property
    def kind(self) -> Kind:
        return "log-dir-offline"


class NoSuchFileError(StorageIOError):
    """An offset index is missing; the segment is recovered."""

    java_class = "java.nio.file.NoSuchFileException"


class KafkaStorageError(LoadError):
    """An I/O error that Kafka has already reported to the log directory's failure channel."""

    java_class = ERRORS + "KafkaStorageException"

    @property
    def kind(self) -> Kind:
        return "log-dir-offline"


def io_error(error: OSError) -> StorageIOError:
    """An error of the operating system as Java's IOException."""
    name = "java.nio.file.NoSuchFileException" if isinstance(error, FileNotFoundError) else "java.io.IOException"
    return StorageIOError(str(error), exception=name)


def illegal_argument(reason: str) -> NoReturn:
    """Raise what `throw new IllegalArgumentException(reason)` does to a load."""
    raise LoadError(reason, exception=ILLEGAL_ARGUMENT)
