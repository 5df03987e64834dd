"""The fetchers of a broker on the loop. Each has a connection to a leader and sends one request at a time.

Source: Kafka's ReplicaFetcherThread, ReplicaFetcherManager, BrokerBlockingSender. `kops.replication.following.fetcher` decides the requests
and the effects of the answers. A fetch waits at the leader, so no two fetchers share a connection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kops.broker.network.peer import Peer, PeerSettings
from kops.errors import ApiError
from kops.replication.following.fetcher import Fetcher, FetchSent
from kops.replication.following.fetcher_manager import BrokerEndPoint, FetcherId, FetcherManager
from kops.replication.following.leader_endpoint import FetcherSettings, RemoteLeader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.replicas.settings import ReplicaSettings
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition
    from kops.replication.following.fetch_state import FetchState, InitialFetchState
    from kops.replication.following.fetcher import Sent
    from kops.replication.following.followers import FollowerReplicas
    from kops.replication.quota import ReplicaQuota


class Versions(Protocol):
    """The API versions of a node (`kops.broker.network.peer.NodeVersions`)."""

    def latest(self, api_key: int, allowed: range | None = None) -> int: ...


class LeaderConnection(Protocol):
    """A connection, as a fetcher uses it (`kops.broker.network.peer.Peer`)."""

    @property
    def versions(self) -> Versions | None: ...
    def send(
        self,
        message: Message,
        done: Callable[[Message | ApiError], object],
        *,
        timeout_ms: int | None = None,
        versions: range | None = None,
    ) -> None: ...
    def close(self) -> None: ...


def connect_by(loop: Loop, draw: Callable[[], float]) -> Callable[[BrokerEndPoint, PeerSettings], LeaderConnection]:
    """Return a function that connects over TCP; `draw()` returns random numbers in [0, 1) for the back-off."""
    return lambda leader, settings: Peer(loop, leader.host, leader.port, draw=draw, settings=settings)


class FetchTask:
    """Sends the requests of a fetcher and passes it the answers. Sleeps while there is nothing to fetch."""

    __slots__ = ("_closed", "_connection", "_is_scheduled", "_loop", "_on_answer", "_sent", "_timer", "fetcher")

    def __init__(self, loop: Loop, fetcher: Fetcher, connection: LeaderConnection, on_answer: Callable[[], None]) -> None:
        self.fetcher = fetcher
        self._loop = loop
        self._connection = connection
        self._on_answer = on_answer
        self._timer: Timer | None = None
        self._sent: Sent | None = None
        self._closed = self._is_scheduled = False

    def wake(self) -> None:
        """Continue: the fetcher's partitions have changed."""
        if not self._is_scheduled and self._sent is None:
            self._is_scheduled = True
            self._loop.call_soon(self._step)

    def close(self) -> None:
        """Close the connection and forget the unanswered request."""
        self._closed = True
        self._stop_timer()
        self._connection.close()

    def _step(self) -> None:
        self._is_scheduled = False
        if self._closed or self._sent is not None:
            return
        self._stop_timer()
        sent = self._sent = self.fetcher.next_request()
        if sent is None:
            self._sleep()
            return
        allowed = None if sent.max_version is None else range(sent.max_version + 1)
        self._connection.send(sent.message, self._answered, versions=allowed)

    def _sleep(self) -> None:
        due_ms = self.fetcher.next_due_ms
        if due_ms is not None:
            self._timer = self._loop.call_later(due_ms - self._loop.monotonic_ms(), self._step)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _answered(self, result: Message | ApiError) -> None:
        sent, self._sent = self._sent, None
        if self._closed or sent is None:
            return
        if isinstance(result, ApiError):
            self.fetcher.on_failure(sent)
        else:
            self.fetcher.on_response(sent, result, self._version(sent))
            self._on_answer()
        self._step()

    def _version(self, sent: Sent) -> int:
        versions = self._connection.versions
        if not isinstance(sent, FetchSent) or versions is None:
            return 0
        allowed = None if sent.max_version is None else range(sent.max_version + 1)
        return versions.latest(sent.message.API_KEY or 0, allowed)


class FollowerFetchers:
    """All fetchers of the partitions that follow another broker.

    `new_fetcher` and `new_leader` make the parts of each. They are the classes `Fetcher` and `RemoteLeader`, except in tests.
    """

    def __init__(
        self,
        loop: Loop,
        settings: ReplicaSettings,
        broker_epoch: Callable[[], int],
        replicas: FollowerReplicas,
        quota: ReplicaQuota,
        connect: Callable[[BrokerEndPoint, PeerSettings], LeaderConnection],
        on_high_watermarks: Callable[[list[TopicPartition]], None],
        new_fetcher: Callable[..., Fetcher],
        new_leader: Callable[[FetcherSettings, ReplicaQuota], RemoteLeader],
    ) -> None:
        self._loop = loop
        self._new_fetcher: Callable[..., Fetcher] = new_fetcher
        self._new_leader: Callable[[FetcherSettings, ReplicaQuota], RemoteLeader] = new_leader
        self._settings = settings
        self._replicas = replicas
        self._quota = quota
        self._connect = connect
        self._on_high_watermarks = on_high_watermarks
        self._tasks: dict[FetcherId, FetchTask] = {}
        self._fetcher_settings = FetcherSettings(
            settings.node_id,
            broker_epoch,
            settings.replica_fetch_wait_max_ms,
            settings.replica_fetch_min_bytes,
            settings.replica_fetch_response_max_bytes,
            settings.replica_fetch_max_bytes,
            settings.replica_fetch_backoff_ms,
        )
        self._manager = FetcherManager(settings.num_replica_fetchers, self._create, self._stop)

    @property
    def failed(self) -> set[TopicPartition]:
        """Partitions that are no longer followed because of an error."""
        return self._manager.failed

    @property
    def fetchers(self) -> Mapping[FetcherId, Fetcher]:
        """The fetchers, for metrics."""
        return self._manager.fetchers

    def add(self, partitions: Mapping[TopicPartition, tuple[BrokerEndPoint, InitialFetchState]]) -> None:
        """Follow these partitions."""
        if partitions:
            self._manager.add(partitions)
            for task in self._tasks.values():
                task.wake()

    def remove(self, keys: Iterable[TopicPartition]) -> dict[TopicPartition, FetchState]:
        """Stop following these partitions. Returns their fetch states."""
        return self._manager.remove(keys)

    def note_change(self, key: TopicPartition) -> None:
        """Record that the start of a log has moved: the next fetch reports it to the leader."""
        fetcher = self._manager.fetcher_of(key)
        if fetcher is not None:
            fetcher.note_change(key)

    def resize(self, fetcher_count: int) -> None:
        """Apply a changed `num.replica.fetchers`."""
        self._manager.resize(fetcher_count)
        for task in self._tasks.values():
            task.wake()

    def stop_idle(self) -> None:
        """End the fetchers without partitions."""
        self._manager.stop_idle()

    def close(self) -> None:
        """Stop all fetchers."""
        self._manager.close()

    def _create(self, fetcher_id: FetcherId, leader: BrokerEndPoint) -> Fetcher:
        settings = self._settings
        endpoint = self._new_leader(self._fetcher_settings, self._quota)
        backoff_ms = settings.replica_fetch_backoff_ms
        # The monotonic clock: with a wall clock that is set back, the next fetch would be late.
        fetcher = self._new_fetcher(endpoint, self._replicas, self._loop.ticks_ms, self._manager.failed, backoff_ms=backoff_ms)
        connection = self._connect(
            leader,
            PeerSettings(
                client_id=f"broker-{settings.node_id}-fetcher-{fetcher_id.number}",
                request_timeout_ms=settings.replica_socket_timeout_ms,
                # The fetcher waits `replica.fetch.backoff.ms` by itself.
                reconnect_backoff_ms=0,
                reconnect_backoff_max_ms=0,
                socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
                socket_connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
                max_in_flight_requests_per_connection=1,
                receive_buffer_bytes=settings.replica_socket_receive_buffer_bytes,
            ),
        )
        self._tasks[fetcher_id] = FetchTask(self._loop, fetcher, connection, self._answered)
        return fetcher

    def _stop(self, fetcher_id: FetcherId, fetcher: Fetcher) -> None:
        self._tasks.pop(fetcher_id).close()

    def _answered(self) -> None:
        moved = self._replicas.with_new_high_watermark
        if moved:
            self._on_high_watermarks(moved.copy())
            moved.clear()
