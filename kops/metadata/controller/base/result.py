"""The context of a request to the controller, and its result (Kafka's ControllerRequestContext, ControllerResult).

A request that fails as a whole raises ApiError inside the core; `errors` turns it into the response of the request.
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
    """The sender and the version of a request. `forwarded`: a broker forwarded it; the client did not send it to the controller."""

    api_version: int
    principal: str = "User:ANONYMOUS"
    forwarded: bool = True


@dataclass(frozen=True, slots=True)
class ControllerResult:
    """Records to append (message and version), and the response to send once they, and all appended before, are committed.

    `is_atomic`: the records go into one batch. `response` is None if no client asked. `shutting_down`: the broker whose controlled shutdown
    waits for the others to have read up to the last of the records.
    """

    records: list[Record] = field(default_factory=list)
    response: Message | None = None
    is_atomic: bool = False
    shutting_down: int | None = None


def code(error: ApiError) -> int:
    """The code of an error."""
    return by_name(error.name).code


def text(error: ApiError) -> str | None:
    """The text of an error as clients see it: none if it only repeats the code's meaning."""
    return error.message or None


def check_record_count(records: list[Record]) -> None:
    """Raises ApiError POLICY_VIOLATION if one request makes more records than a batch may have (BoundedListTooLongException)."""
    if len(records) > MAX_RECORDS_PER_USER_OP:
        raise ApiError("POLICY_VIOLATION", "Unable to perform excessively large batch operation.")
