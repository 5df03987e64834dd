"""The leader of a fetcher: another broker, with a fetch session, or this one, whose log is copied into another directory.

Sources: Kafka's LeaderEndPoint, RemoteLeaderEndPoint, LocalLeaderEndPoint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from kops.errors import KopsError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.messages.fetch_request import FetchRequest, ReplicaState
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kops.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kops.replication.following.fetch_session_handler import FetchRequestData, FetchSessionHandler, response_data
from kops.replication.following.fetch_state import FetchState, Phase, Replicas
from kops.replication.leading.fetch import FUTURE_LOCAL_REPLICA_ID, FetchInfo

if TYPE_CHECKING:
    from kops.protocol.messages.fetch_response import FetchResponse, PartitionData
    from kops.records.log_offsets import TopicPartition
    from kops.replication.quota import ReplicaQuota

LAST_VERSION_WITHOUT_TOPIC_IDS: Final = 12
_FULL_SESSION: Final = (0, -1)


class FetcherSettings(NamedTuple):
    """The settings `replica.fetch.*`: times are ms, sizes bytes. `broker_epoch` returns the epoch of this broker's registration."""

    broker_id: int
    broker_epoch: Callable[[], int]
    wait_max_ms: int = 500
    min_bytes: int = 1
    response_max_bytes: int = 10_485_760
    max_bytes: int = 1_048_576
    backoff_ms: int = 1_000


@mypyc_attr(acyclic=True)
class BuiltFetch:
    """A fetch to send, at most in `max_version` (None: the newest), and the partitions in it. The logs of `failed` cannot be read."""

    __slots__ = ("asked", "failed", "max_version", "request")

    def __init__(
        self,
        request: FetchRequest | None,
        asked: Mapping[TopicPartition, FetchInfo],
        failed: list[TopicPartition],
        max_version: int | None = None,
    ) -> None:
        self.request = request
        self.asked = asked
        self.failed = failed
        self.max_version = max_version


class LeaderEndPoint(Protocol):
    """The leader of a fetcher's partitions."""

    def build_fetch(
        self, states: Mapping[TopicPartition, FetchState], changed: Iterable[TopicPartition], replicas: Replicas, now_ms: int
    ) -> BuiltFetch:
        """Build the next fetch. `changed` are the partitions that have changed or were removed since the last one was built."""

    def read_response(self, response: FetchResponse, version: int) -> dict[TopicPartition, PartitionData] | None:
        """Return the answers by partition, or None if the response as a whole failed."""

    def on_failure(self) -> None: ...
    @property
    def replica_id(self) -> int: ...


@mypyc_attr(allow_interpreted_subclasses=True)
class RemoteLeader:
    """Another broker."""

    def __init__(self, settings: FetcherSettings, quota: ReplicaQuota) -> None:
        self.session = FetchSessionHandler()
        self.replica_id = settings.broker_id
        self._settings = settings
        self._quota = quota
        self._left_out: dict[TopicPartition, None] = {}  # delayed or throttled: they may be fetched later
        self._behind: dict[TopicPartition, None] = {}  # fetched only while the quota is not exceeded

    def build_fetch(
        self, states: Mapping[TopicPartition, FetchState], changed: Iterable[TopicPartition], replicas: Replicas, now_ms: int
    ) -> BuiltFetch:
        """Fetch the partitions that are ready and not throttled, in one request of the session. Resting partitions are skipped."""
        failed: list[TopicPartition] = []
        wanted: dict[TopicPartition, FetchInfo] = {}
        unwanted: list[TopicPartition] = []
        is_exceeded = self._quota.is_quota_exceeded
        is_full = self.session.next_metadata.is_full
        for key in list(states) if is_full else self._to_look_at(changed, is_exceeded=is_exceeded):
            state = states.get(key)
            self._left_out.pop(key, None)
            self._behind.pop(key, None)
            if state is None:
                unwanted.append(key)
            elif state.is_ready(Phase.FETCHING, now_ms) and not (is_exceeded and self._is_throttled(key, state)):
                try:
                    wanted[key] = _info(state, replicas.log_start_offset(key), self._settings)
                except KopsError:
                    failed.append(key)
                if not state.is_replica_in_sync:
                    self._behind[key] = None
            if state is not None and key not in wanted:
                self._left_out[key] = None
                unwanted.append(key)
        data = self.session.build(wanted) if is_full else self.session.change(self._in_order(wanted, states), unwanted)
        if data.is_empty:
            return BuiltFetch(None, {}, failed)
        settings = self._settings
        request = _request(data, settings, settings.broker_id, settings.broker_epoch(), settings.wait_max_ms, settings.min_bytes)
        max_version = None if data.can_use_topic_ids else LAST_VERSION_WITHOUT_TOPIC_IDS
        return BuiltFetch(request, data.session_partitions, failed, max_version)

    def _to_look_at(self, changed: Iterable[TopicPartition], *, is_exceeded: bool) -> Iterable[TopicPartition]:
        """Return the partitions for which the next fetch may differ from the last one."""
        if not self._left_out and not is_exceeded:
            return changed
        return [*{**self._left_out, **(self._behind if is_exceeded else {}), **dict.fromkeys(changed)}]

    def _in_order(
        self, wanted: dict[TopicPartition, FetchInfo], states: Mapping[TopicPartition, FetchState]
    ) -> dict[TopicPartition, FetchInfo]:
        """Sort partitions that are new to the session in the order of the states. Few requests need this."""
        if len(wanted) < 2:
            return wanted
        known = self.session.session_partitions
        if all(map(known.__contains__, wanted)) or sum(key not in known for key in wanted) < 2:
            return wanted
        return {key: wanted[key] for key in states if key in wanted}

    def _is_throttled(self, key: TopicPartition, state: FetchState) -> bool:
        return not state.is_replica_in_sync and self._quota.is_throttled(key)

    def read_response(self, response: FetchResponse, version: int) -> dict[TopicPartition, PartitionData] | None:
        """Return the answers. An error of the session fails only this round, unless the topic ids were wrong."""
        answers = self.session.take_response(response, version)
        if answers is None and response.error_code != _TOPIC_ID_ERROR:
            return {}
        return answers

    def on_failure(self) -> None:
        """Handle a lost request."""
        self.session.handle_error()


class LocalLeader:
    """This broker. It copies one partition at a time to its end, in order of name."""

    def __init__(self, settings: FetcherSettings, quota: ReplicaQuota) -> None:
        self.replica_id = settings.broker_id
        self._settings = settings
        self._quota = quota
        self._in_progress: TopicPartition | None = None

    def build_fetch(
        self, states: Mapping[TopicPartition, FetchState], changed: Iterable[TopicPartition], replicas: Replicas, now_ms: int
    ) -> BuiltFetch:
        """Fetch the partition in progress, or the first that is ready. Nothing is fetched while the quota is exceeded."""
        if self._quota.is_quota_exceeded:
            return BuiltFetch(None, {}, [])
        ready = [key for key, state in states.items() if state.is_ready(Phase.FETCHING, now_ms)]
        if self._in_progress not in ready:
            self._in_progress = min(ready, default=None)
        key = self._in_progress
        if key is None:
            return BuiltFetch(None, {}, [])
        try:
            wanted = {key: _info(states[key], replicas.log_start_offset(key), self._settings)}
        except KopsError:
            return BuiltFetch(None, {}, [key])
        data = FetchSessionHandler().build(wanted)
        request = _request(data, self._settings, FUTURE_LOCAL_REPLICA_ID, -1, 0, 0)
        request.session_id, request.session_epoch = _FULL_SESSION
        return BuiltFetch(request, wanted, [], None if data.can_use_topic_ids else LAST_VERSION_WITHOUT_TOPIC_IDS)

    def read_response(self, response: FetchResponse, version: int) -> dict[TopicPartition, PartitionData] | None:
        """Return the answers. Inside the broker, topics keep their names."""
        return response_data(response, {}, LAST_VERSION_WITHOUT_TOPIC_IDS)

    def on_failure(self) -> None:
        """Do nothing, because there is no session."""


_TOPIC_ID_ERROR = 106


def _info(state: FetchState, log_start_offset: int, settings: FetcherSettings) -> FetchInfo:
    return FetchInfo(
        state.fetch_offset,
        log_start_offset,
        settings.max_bytes,
        state.current_leader_epoch,
        state.last_fetched_epoch,
        state.topic_id or ZERO_UUID,
    )


def _request(
    data: FetchRequestData, settings: FetcherSettings, replica_id: int, broker_epoch: int, max_wait_ms: int, min_bytes: int
) -> FetchRequest:
    can_use_topic_ids = data.can_use_topic_ids
    request = FetchRequest(
        replica_id=-1 if can_use_topic_ids else replica_id,
        replica_state=ReplicaState(replica_id, broker_epoch) if can_use_topic_ids else ReplicaState(),
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=settings.response_max_bytes,
    )
    return data.fill(request)


def epochs_request(replica_id: int, wanted: Mapping[TopicPartition, tuple[int, int]]) -> OffsetForLeaderEpochRequest:
    """Build a request for the ends of epochs: (current leader epoch, epoch) by partition."""
    topics: dict[str, OffsetForLeaderTopic] = {}
    for key, (current_leader_epoch, epoch) in wanted.items():
        topic = topics.setdefault(key.topic, OffsetForLeaderTopic(topic=key.topic))
        topic.partitions.append(OffsetForLeaderPartition(key.partition, current_leader_epoch, epoch))
    return OffsetForLeaderEpochRequest(replica_id=replica_id, topics=list(topics.values()))


def offsets_request(replica_id: int, wanted: Mapping[TopicPartition, tuple[int, int]]) -> ListOffsetsRequest:
    """Build a request for offsets: (current leader epoch, timestamp) by partition."""
    topics: dict[str, ListOffsetsTopic] = {}
    for key, (current_leader_epoch, timestamp) in wanted.items():
        topic = topics.setdefault(key.topic, ListOffsetsTopic(name=key.topic))
        topic.partitions.append(ListOffsetsPartition(key.partition, current_leader_epoch, timestamp))
    return ListOffsetsRequest(replica_id=replica_id, topics=list(topics.values()))
