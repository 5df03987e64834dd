"""The errors of kops.

Bytes that violate their format raise only `DecodeError`. A user's request that cannot be fulfilled raises another `KopsError`. Each class
has the exit code that the command line returns for it (see the manual page kops-exit-codes).
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing itself is not imported, because `kops --help` imports this module
if TYPE_CHECKING:
    from typing import ClassVar


class KopsError(Exception):
    """A request can't be fulfilled. `str()` is the message for the user."""

    exit_code: ClassVar[int] = 8


class DecodeError(KopsError):
    """Bytes that violate their format.

    `code` is stable (a finding's code). `position` is a byte position in the file, or in the given bytes if there is no file. `file` is the
    path, if known.
    """

    def __init__(self, reason: str, *, code: str = "corrupt", position: int | None = None, file: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.code = code
        self.position = position
        self.file = file

    def at(self, *, file: str | None = None, position: int | None = None) -> DecodeError:
        """Set the place of the error unless it is already known. Returns the error itself, for `raise error.at(...)`."""
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
    """An error for which a Kafka broker has an error code. `name` is the name of the code (`OUT_OF_ORDER_SEQUENCE_NUMBER`, see Kafka's
    Errors).

    `record_errors` lists the invalid records by their index in the batch, if only some are invalid (KIP-467).
    """

    def __init__(self, name: str, message: str = "", *, record_errors: tuple[tuple[int, str | None], ...] = ()) -> None:
        super().__init__(message or name)
        self.name = name
        self.message = message
        self.record_errors = record_errors


class UsageError(KopsError):
    """An invalid option, key or value. The message names it and says what is allowed."""

    exit_code = 16


class NotFoundError(KopsError):
    """A path, topic or partition does not exist."""


class UnreachableError(KopsError):
    """A server can't be reached or does not answer in time. The message has its address."""


class LockHeldError(KopsError):
    """A running broker (or another kops) holds the lock of a log directory."""


class MissingDependencyError(KopsError):
    """A required program or package is not installed. The message says how to get it."""
