"""Kafka's exceptions that end the loading of a log or decide how it continues.

Kafka's loader uses exceptions for its control flow. `LogLoader` catches `InvalidOffsetException` and `IOException` around the recovery of
one segment. `LogSegment.recover` catches `CorruptRecordException` and `InvalidRecordException`. Any other exception aborts the broker's
startup (`LogManager.loadLogs`). An exception that Kafka catches somewhere has a class of its own here. Any other one is a plain `LoadError`
with the name of the Java class.
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

    `exception` is the Java class that Kafka's loader throws. `reason` is the exception's message, with paths as they were passed to the
    loader. `words` say the same to a reader of kops; they are needed where Java's message is empty or is about Java. `kind` is
    LogManager's reaction: the log directory goes offline (an I/O error), or the broker does not start (any other error).
    `str()` is for a user: the words, and the exception's name without its package.
    """

    java_class: ClassVar[str] = ""

    def __init__(self, reason: str, *, exception: str = "", words: str = "") -> None:
        super().__init__(reason)
        self.exception = exception or self.java_class
        self.reason = reason
        self.words = words or reason

    @property
    def kind(self) -> Kind:
        """How the broker reacts (LogManager.loadLogs)."""
        return "broker-does-not-start"

    def __str__(self) -> str:
        name = self.exception.rpartition(".")[2]
        return f"{self.words} ({name})" if self.words and name else self.words or name


class CorruptRecordError(LoadError):
    """A batch's size or checksum is wrong."""

    java_class = ERRORS + "CorruptRecordException"


class InvalidRecordError(LoadError):
    """A record's contents are wrong."""

    java_class = "org.apache.kafka.common.InvalidRecordException"


class InvalidOffsetError(LoadError):
    """An offset to be added to an index is not larger than the last one."""

    java_class = ERRORS + "InvalidOffsetException"


class OffsetOutOfRangeError(LoadError):
    """A read is outside the log."""

    java_class = ERRORS + "OffsetOutOfRangeException"


class CorruptIndexError(LoadError):
    """The transaction index does not belong to its segment."""

    java_class = "org.apache.kafka.storage.internals.log.CorruptIndexException"


class CorruptSnapshotError(LoadError):
    """A producer snapshot can't be read. Kafka deletes it and uses the previous one."""

    java_class = "org.apache.kafka.storage.internals.log.CorruptSnapshotException"


class StorageIOError(LoadError):
    """An I/O error, or an error that Kafka reports as one. The log directory goes offline."""

    java_class = "java.io.IOException"

    @property
    def kind(self) -> Kind:
        return "log-dir-offline"


class NoSuchFileError(StorageIOError):
    """An offset index is missing. The segment is recovered."""

    java_class = "java.nio.file.NoSuchFileException"


class KafkaStorageError(LoadError):
    """An I/O error that Kafka has already reported to the log directory's failure channel."""

    java_class = ERRORS + "KafkaStorageException"

    @property
    def kind(self) -> Kind:
        return "log-dir-offline"


def io_error(error: OSError) -> StorageIOError:
    """Convert an error of the operating system to Java's IOException."""
    name = "java.nio.file.NoSuchFileException" if isinstance(error, FileNotFoundError) else "java.io.IOException"
    return StorageIOError(str(error), exception=name, words=words_of(error))


def words_of(error: OSError) -> str:
    """An error of the operating system, without its number."""
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{error.strerror or error}"


def illegal_argument(reason: str, *, words: str = "") -> NoReturn:
    """Raise the error for `throw new IllegalArgumentException(reason)`."""
    raise LoadError(reason, exception=ILLEGAL_ARGUMENT, words=words)
