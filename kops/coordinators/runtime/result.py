"""What an operation on a coordinator's shard gives (Kafka's CoordinatorResult)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class CoordinatorResult(Generic[T]):
    """Records to append, and the response that leaves when they, and all before them, are committed.

    `append_promise` is done when the records are committed, or could not be written; the response does not come from it then.
    `replay_records` is False where the state was changed already. `is_atomic`: the records go into one batch.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: T | None = None
    append_promise: Promise[None] | None = None
    replay_records: bool = True
    is_atomic: bool = True
