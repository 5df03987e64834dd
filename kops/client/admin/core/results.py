"""Outcomes by key: what KafkaFutures by key are in Java, and the errors that a program sees.

Source: Kafka's result classes (CreateTopicsResult, DescribeConfigsResult …: values() and all()).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Generic, TypeVar

from kops.client.errors import KafkaError, KafkaTimeoutError, error_named
from kops.errors import ApiError, KopsError
from kops.protocol.errors import by_code

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.records.log_offsets import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
W = TypeVar("W")


class Results(Generic[K, V]):
    """The outcome of each key of a request, in the order of the request.

    `results[key]` returns the value or raises the key's error. `all()` returns all values or raises the first error. A note of the error
    (`__notes__`) names the key. Iteration gives keys.
    """

    __slots__ = ("_outcomes",)

    def __init__(self, outcomes: Mapping[K, V | KafkaError]) -> None:
        self._outcomes = dict(outcomes)

    def __getitem__(self, key: K) -> V:
        outcome = self._outcomes[key]
        if isinstance(outcome, KafkaError):
            note = f"the key is {key!r}"  # most of the brokers' messages don't name it
            if note not in getattr(outcome, "__notes__", ()):
                outcome.add_note(note)
            raise outcome
        return outcome

    def __iter__(self) -> Iterator[K]:
        return iter(self._outcomes)

    def __len__(self) -> int:
        return len(self._outcomes)

    def __contains__(self, key: object) -> bool:
        return key in self._outcomes

    def keys(self) -> Iterable[K]:
        """The keys of the request."""
        return self._outcomes.keys()

    def all(self) -> dict[K, V]:
        """The value of each key. Raises the first error if there is one."""
        return {key: self[key] for key in self._outcomes}

    def succeeded(self) -> dict[K, V]:
        """The values of the keys without an error."""
        return {key: one for key, one in self._outcomes.items() if not isinstance(one, KafkaError)}

    def errors(self) -> dict[K, KafkaError]:
        """The errors of the keys that failed. Empty if all succeeded."""
        return {key: one for key, one in self._outcomes.items() if isinstance(one, KafkaError)}

    def outcomes(self) -> dict[K, V | KafkaError]:
        """The value or the error of each key."""
        return dict(self._outcomes)

    def map(self, change: Callable[[V], W]) -> Results[K, W]:
        """Return the same outcomes with other values."""
        return Results({key: one if isinstance(one, KafkaError) else change(one) for key, one in self._outcomes.items()})

    def __repr__(self) -> str:
        return f"Results({self._outcomes!r})"


def error_of(code: int, message: str | None = None) -> KafkaError | None:
    """Return the error for a code of a response, or None for NONE."""
    if not code:
        return None
    error = by_code(code)
    return error_named(error.name, message or error.words)


def raise_error(code: int, message: str | None = None) -> None:
    """Raise the error for a code, unless it is NONE."""
    error = error_of(code, message)
    if error is not None:
        raise error


def kafka_error(error: KopsError) -> KafkaError:
    """Return a client's error as programs see it. No answer within the operation's time is a KafkaTimeoutError."""
    if isinstance(error, KafkaError):
        return error
    if isinstance(error, ApiError):
        return error_named(error.name, error.message)
    return KafkaTimeoutError(str(error))


def of_partition(client: Client, key: TopicPartition, error: KafkaError) -> KafkaError:
    """Return the error of a partition with the partition's name. Commands, whose client is not patient, put the name before it."""
    return error_named(error.name, f"{key.topic}-{key.partition}: {error}") if client.is_patient else error


def missing(what: str, key: object) -> KafkaError:
    """Return the error of a key that a response omits."""
    return KafkaError(f"the response to {what} has no result for {key}")
