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
    """The code of an error."""
    return by_name(name).code


def append_error_code(error: KopsError) -> int:
    """What a member hears when the group could not be written: clients need not know why."""
    name = error.name if isinstance(error, ApiError) else "UNKNOWN_SERVER_ERROR"
    return code(_OF_APPENDS.get(name, name))


def unless_broken(done: Callable[[KopsError | None], None]) -> Callable[[None, KopsError | None], None]:
    """What happens when records are written, for a group that may have changed meanwhile: a broken state ends it half-way, as in Kafka.

    Java's CompletableFuture keeps to itself what such a callback throws. Who waits is answered by the rebalance that is under way.
    """

    def call(_: None, error: KopsError | None) -> None:
        try:
            done(error)
        except ApiError as broken:
            assert broken.name == "UNKNOWN_SERVER_ERROR"

    return call
