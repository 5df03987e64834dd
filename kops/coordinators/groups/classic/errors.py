"""Error codes of classic groups' responses (from Kafka's Errors and GroupMetadataManager)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_name

_OF_APPENDS: Final = {
    "UNKNOWN_TOPIC_OR_PARTITION": "COORDINATOR_NOT_AVAILABLE",
    "NOT_ENOUGH_REPLICAS": "COORDINATOR_NOT_AVAILABLE",
    "REQUEST_TIMED_OUT": "COORDINATOR_NOT_AVAILABLE",
    "NOT_LEADER_OR_FOLLOWER": "NOT_COORDINATOR",
    "KAFKA_STORAGE_ERROR": "NOT_COORDINATOR",
    "MESSAGE_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "RECORD_LIST_TOO_LARGE": "UNKNOWN_SERVER_ERROR",
    "INVALID_FETCH_SIZE": "UNKNOWN_SERVER_ERROR",
}


def code(name: str) -> int:
    """Return the code of an error."""
    return by_name(name).code


def append_error_code(error: KopsError) -> int:
    """Return the error code for a member if the group could not be written. This hides the cause from clients."""
    name = error.name if isinstance(error, ApiError) else "UNKNOWN_SERVER_ERROR"
    return code(_OF_APPENDS.get(name, name))


def unless_broken(done: Callable[[KopsError | None], None]) -> Callable[[None, KopsError | None], None]:
    """Wrap a callback for written records. If the group's state has changed, the callback may fail half-way, as in Kafka.

    Java's CompletableFuture swallows exceptions of such a callback. The rebalance in progress answers the waiting members.
    """

    def call(_: None, error: KopsError | None) -> None:
        try:
            done(error)
        except ApiError as broken:
            assert broken.name == "UNKNOWN_SERVER_ERROR"

    return call
