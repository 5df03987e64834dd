"""The context of a request to the controller, and its result (Kafka's ControllerRequestContext, ControllerResult).

A request that fails as a whole raises ApiError inside the core. `error_responses` turns the error into the response.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kops.errors import ApiError
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name

Record = tuple[Message, int]
MAX_RECORDS_PER_USER_OP: Final = 10_000


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The sender and the version of a request. With `forwarded`, a broker forwarded the request of a client. With `is_late`, the time that
    the request gives the controller is over."""

    api_version: int
    principal: str = "User:ANONYMOUS"
    forwarded: bool = True
    is_late: bool = False

    def check_time(self) -> None:
        """Raise ApiError if the request comes too late to be carried out. Kafka checks this when an event's turn comes, so not for requests
        in which nothing is left to do."""
        if self.is_late:
            raise ApiError("REQUEST_TIMED_OUT")


@dataclass(frozen=True, slots=True)
class ControllerResult:
    """Records to append (message and version), and the response to send once these and all earlier records are committed.

    With `is_atomic`, the records go into one batch. `response` is None if there is no request. `shutting_down` is the broker whose
    controlled shutdown waits until the others have read the last of the records.
    """

    records: list[Record] = field(default_factory=list)
    response: Message | None = None
    is_atomic: bool = False
    shutting_down: int | None = None


def code(error: ApiError) -> int:
    """Return the code of an error."""
    return by_name(error.name).code


def text(error: ApiError) -> str | None:
    """Return the error text for clients, or None if it only repeats the meaning of the code."""
    return error.message or None


def check_record_count(records: list[Record]) -> None:
    """Raise ApiError POLICY_VIOLATION if one request creates more records than a batch may have (BoundedListTooLongException)."""
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise ApiError("POLICY_VIOLATION", "Unable to perform excessively large batch operation.")
