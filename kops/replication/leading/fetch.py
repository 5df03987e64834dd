"""A fetch as seen by the leader, or by a follower that serves consumers (Kafka FetchParams, FetchRequest.PartitionData, LogReadInfo)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from mypy_extensions import mypyc_attr

from kops.protocol.declaration import ZERO_UUID
from kops.records.log_offsets import Isolation

if TYPE_CHECKING:
    from kops.replication.log import Fetched

FUTURE_LOCAL_REPLICA_ID: Final = -3


class ClientMetadata(NamedTuple):
    """The client of a fetch, for the choice of a nearby replica (KIP-392)."""

    rack_id: str
    client_id: str = ""
    listener_name: str = ""


@mypyc_attr(acyclic=True)
class FetchParams:
    """The parameters of a whole fetch. `replica_id` -1 is a consumer. Sizes are bytes, `max_wait_ms` is ms. It is not changed."""

    __slots__ = ("client_metadata", "isolation", "max_bytes", "max_wait_ms", "min_bytes", "replica_epoch", "replica_id")

    def __init__(
        self,
        replica_id: int,
        replica_epoch: int,
        max_wait_ms: int,
        min_bytes: int,
        max_bytes: int,
        isolation: Isolation,
        client_metadata: ClientMetadata | None = None,
    ) -> None:
        self.replica_id = replica_id
        self.replica_epoch = replica_epoch
        self.max_wait_ms = max_wait_ms
        self.min_bytes = min_bytes
        self.max_bytes = max_bytes
        self.isolation = isolation
        self.client_metadata = client_metadata

    @property
    def is_from_follower(self) -> bool:
        """Whether the fetch is from another broker that replicates."""
        return self.replica_id >= 0

    @property
    def fetch_only_leader(self) -> bool:
        """Whether only a leader may answer. Exceptions are a consumer with client metadata and a debugging consumer."""
        return self.is_from_follower or (is_consumer(self.replica_id) and self.client_metadata is None)


def is_consumer(replica_id: int) -> bool:
    """Whether a fetch's replica id is that of a consumer, so neither another broker nor a copy on this one."""
    return replica_id < 0 and replica_id != FUTURE_LOCAL_REPLICA_ID


def isolation_of(replica_id: int, isolation_level: int) -> Isolation:
    """Return how far a fetch may read. `isolation_level` is the request's (0 read uncommitted, 1 read committed)."""
    if not is_consumer(replica_id):
        return Isolation.LOG_END
    return Isolation.TXN_COMMITTED if isolation_level == 1 else Isolation.HIGH_WATERMARK


@mypyc_attr(acyclic=True)
class FetchInfo:
    """The parameters of one partition in a fetch. Epochs are None if the request has none. It is not changed."""

    __slots__ = ("current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset", "max_bytes", "topic_id")

    def __init__(
        self,
        fetch_offset: int,
        log_start_offset: int,
        max_bytes: int,
        current_leader_epoch: int | None = None,
        last_fetched_epoch: int | None = None,
        topic_id: bytes = ZERO_UUID,
    ) -> None:
        self.fetch_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.topic_id = topic_id

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, FetchInfo)
            and self.fetch_offset == other.fetch_offset
            and self.log_start_offset == other.log_start_offset
            and self.max_bytes == other.max_bytes
            and self.current_leader_epoch == other.current_leader_epoch
            and self.last_fetched_epoch == other.last_fetched_epoch
            and self.topic_id == other.topic_id
        )

    def __hash__(self) -> int:
        return hash((self.fetch_offset, self.log_start_offset, self.max_bytes, self.topic_id))

    def __repr__(self) -> str:
        return (
            f"FetchInfo({self.fetch_offset}, {self.log_start_offset}, {self.max_bytes}, {self.current_leader_epoch}, "
            f"{self.last_fetched_epoch}, {self.topic_id!r})"
        )


class EpochEndOffset(NamedTuple):
    """The end of an epoch for the answer to OffsetForLeaderEpoch. -1 if it is unknown. `error` is a name of Kafka's Errors."""

    leader_epoch: int = -1
    end_offset: int = -1
    error: str = "NONE"


@mypyc_attr(acyclic=True)
class LogRead:
    """The result of a fetch: data, or where the client's log diverges from this one. The offsets are those before the read. It is not
    changed."""

    __slots__ = ("diverging_epoch", "fetched", "high_watermark", "last_stable_offset", "log_end_offset", "log_start_offset")

    def __init__(
        self,
        fetched: Fetched | None,
        diverging_epoch: EpochEndOffset | None,
        high_watermark: int,
        log_start_offset: int,
        log_end_offset: int,
        last_stable_offset: int,
    ) -> None:
        self.fetched = fetched
        self.diverging_epoch = diverging_epoch
        self.high_watermark = high_watermark
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.last_stable_offset = last_stable_offset
