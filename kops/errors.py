"""The one error tree of kops.

Bytes that violate their format raise `DecodeError` and nothing else. What a user asked for and cannot be done raises another `KopsError`.
Each class carries the exit code that the command line gives it (the sums of `kops log`, see the manual page kops-exit-codes).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not imported: `kops --help` comes through here
if TYPE_CHECKING:
    from typing import ClassVar


class KopsError(Exception):
    """Something that was asked for can't be done. `str()` is the sentence for the user."""

    exit_code: ClassVar[int] = 8


class DecodeError(KopsError):
    """Bytes that violate their format.

    `code` is stable (a finding's code), `position` is in bytes within the file (or within the bytes given where there is no file),
    `file` is the path where it is known.
    """

    def __init__(self, reason: str, *, code: str = "corrupt", position: int | None = None, file: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.position = position
        self.file = file

    def at(self, *, file: str | None = None, position: int | None = None) -> DecodeError:
        """Fill in where it was, unless that is known already; returns itself, for `raise error.at(...)`."""
        if self.file is None:
            self.file = file
        if self.position is None:
            self.position = position
        return self

    def __str__(self) -> str:
        where = self.file or ""
        if self.position is not None:
            where = f"{where}:{self.position}" if where else f"position {self.position}"
        return f"{where}: {self.reason}" if where else self.reason


class ApiError(KopsError):
    """What a Kafka broker answers with an error code: `name` is the code's name (`OUT_OF_ORDER_SEQUENCE_NUMBER`), see Kafka's Errors.

    `record_errors` names the records that are wrong, by their index in the batch, where only some are (KIP-467).
    """

    def __init__(self, name: str, message: str = "", *, record_errors: tuple[tuple[int, str | None], ...] = ()) -> None:
        super().__init__(message or name)
        self.name = name
        self.message = message
        self.record_errors = record_errors


class UsageError(KopsError):
    """An invalid flag, key or value. The message names it and says what is allowed."""

    exit_code = 16


class NotFoundError(KopsError):
    """A path, topic or partition that is not there."""


class UnreachableError(KopsError):
    """A server that can't be reached, or that does not answer in time; the message has its address."""


class LockHeldError(KopsError):
    """A running broker (or another kops) holds the lock of a log directory."""


class MissingDependencyError(KopsError):
    """Something that is needed is not installed. The message says how to get it."""
