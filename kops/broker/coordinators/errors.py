"""The error that a client gets when an operation of a coordinator fails (Kafka's CoordinatorOperationExceptionHelper)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final, TypeVar

from kops.broker.replicas.hosted_partitions import error_name
from kops.coordinators.runtime.promise import Promise, all_of
from kops.errors import ApiError, KopsError

log = logging.getLogger(__name__)
T = TypeVar("T")

_TOLD_AS: Final = {
    # The verification of a transaction can fail with this error. Older clients do not expect it. The replacement makes them retry.
    "NETWORK_EXCEPTION": "COORDINATOR_LOAD_IN_PROGRESS",
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT": "COORDINATOR_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_COORDINATOR",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
    "MESSAGE_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "RECORD_LIST_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "INVALID_FETCH_SIZE": "UNKNOWN_SERVER_ERROR",
}


def operation_error(name: str, error: KopsError) -> tuple[str, str | None]:
    """Return the name of the error for the client, and its text if that differs from the usual one."""
    found = error_name(error)
    if found == "UNKNOWN_SERVER_ERROR":
        log.error("Operation %s hit an unexpected exception: %s.", name, error)
        return found, None
    told = _TOLD_AS.get(found)
    if told is not None:
        return told, None
    return found, error.message or None if isinstance(error, ApiError) else None


def answering_errors(name: str, promise: Promise[T], answer: Callable[[str, str | None], T]) -> Promise[T]:
    """Return a promise that never fails: an error becomes the response that `answer` makes of it."""
    return promise.or_else(lambda error: answer(*operation_error(name, error)))


def joined(promises: list[Promise[list[T]]]) -> Promise[list[T]]:
    """Return a promise of all lists joined in this order. It fails with the first error."""
    return all_of(promises).then(lambda _: [item for promise in promises for item in promise.result()])
