"""A waiting ShareFetch: the request, its errors and its results. Source: ShareFetch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kops.coordinators.runtime.promise import Promise
from kops.coordinators.share.sessions.session import TopicIdPartition
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.messages.share_fetch_response import PartitionData

Results = Mapping[TopicIdPartition, PartitionData]


@dataclass(slots=True)
class ShareFetch:
    """A request. `parts` are in the order in which they are served. Sizes are in bytes."""

    group_id: str
    member_id: str
    parts: Sequence[TopicIdPartition]
    max_bytes: int
    min_bytes: int
    max_fetch_records: int
    batch_size: int
    is_record_limit: bool = False
    results: Promise[Results] = field(default_factory=Promise)
    errors: dict[TopicIdPartition, ApiError] = field(default_factory=dict)

    @property
    def is_hopeless(self) -> bool:
        """Whether all partitions have failed."""
        return len(self.errors) == len(self.parts)

    def without_errors(self, parts: Iterable[TopicIdPartition]) -> list[TopicIdPartition]:
        """The partitions that have not failed."""
        return [part for part in parts if part not in self.errors]

    def complete(self, results: Results) -> None:
        """Answer with these results and the errors, unless the fetch has already been answered."""
        failed = {part: error_result(part, error) for part, error in self.errors.items()}
        self.results.complete({**results, **failed})

    def fail(self, parts: Iterable[TopicIdPartition], error: ApiError) -> None:
        """Record the error of these partitions. If all have failed, answer."""
        if not self.results.is_done:
            self.errors.update(dict.fromkeys(parts, error))
            self.complete({})


def error_result(part: TopicIdPartition, error: ApiError) -> PartitionData:
    """Return the result of a partition that has failed."""
    return PartitionData(part.partition, errors.by_name(error.name).code, error.message or None, records=b"")
