"""The result of an operation on a coordinator's shard (Kafka's CoordinatorResult)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord

T = TypeVar("T")


class CoordinatorResult(Generic[T]):
    """Records to append, and the response to send when these records and all earlier ones are committed.

    If `append_promise` is given, it completes when the records are committed or could not be written, and `response` is not used.
    `replay_records` is False if the state has already been changed. With `is_atomic`, all records must be in one batch.
    """

    __slots__ = ("append_promise", "is_atomic", "records", "replay_records", "response")

    def __init__(
        self,
        records: Sequence[CoordinatorRecord] = (),
        response: T | None = None,
        append_promise: Promise[None] | None = None,
        replay_records: bool = True,
        is_atomic: bool = True,
    ) -> None:
        self.records = records
        self.response = response
        self.append_promise = append_promise
        self.replay_records = replay_records
        self.is_atomic = is_atomic
