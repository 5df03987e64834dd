"""Runs a node of the quorum: the Raft core on the loop, its log and election state on disk, and its peers.

Source: Kafka's KafkaRaftManager, KafkaNetworkChannel and KafkaRaftClientDriver, and the handling of several listeners in KafkaRaftClient.
The core decides; this module carries out its actions in order. The log is written on the loop and synced in a side thread, one sync at a
time. Records appended during a sync wait for the next. The core counts a record as durable when its sync has ended. An election is written
and synced on the loop, because votes are rare and must be durable before they are sent. Errors (KafkaStorageError, OSError, a broken
invariant of Raft) propagate out of the loop or go to `on_fault`: a node can't run without its metadata log.
"""

from __future__ import annotations

import logging
import posixpath
from collections import deque
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kops.broker.network.peer import Peers, PeerSettings
from kops.broker.quorum.election_store import FileElectionStore
from kops.broker.quorum.raft_log import METADATA_DIR, KafkaRaftLog, MetadataLogSettings
from kops.errors import ApiError, KopsError
from kops.metadata.raft.node.actions import Committed, LeaderChanged, LoadSnapshot, Request, Respond, SendRequest, ShutDown
from kops.metadata.raft.node.messages import error_response
from kops.metadata.raft.node.node import RaftNode
from kops.metadata.raft.voters.replica import LeaderAndEpoch, OffsetAndEpoch
from kops.metadata.raft.voters.settings import MAX_BATCH_SIZE
from kops.protocol.messages import (
    AddRaftVoterRequest,
    BeginQuorumEpochRequest,
    DescribeQuorumRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
    VoteRequest,
)
from kops.records import read_batches
from kops.storage.background.work import SideWork
from kops.storage.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.network.socket_server import RequestContext
    from kops.files import Files
    from kops.metadata.raft.log.log import SnapshotSource
    from kops.metadata.raft.log.snapshot import SnapshotWriter
    from kops.metadata.raft.node.actions import Action, Identity, Message
    from kops.records import Batch
    from kops.storage.background.flush import Flush

log = logging.getLogger(__name__)

RAFT_REQUESTS: Final = (
    VoteRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchSnapshotRequest,
    DescribeQuorumRequest,
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateRaftVoterRequest,
)
"""The requests that `RaftManager.handle` takes."""
_RECONNECT_BACKOFF_MAX_MS: Final = 500
_DRAWS: Final = 1 << 30
PATIENCE_WITH_THREADS_S: Final = 10
"""How long a node that ends at once waits for a side thread."""


class RaftListener(Protocol):
    """Receives committed batches (RaftClient.Listener), in log order and each batch once."""

    def on_snapshot(self, snapshot: SnapshotSource) -> None:
        """Replace the state with this snapshot. The following batches begin at its offset."""

    def on_committed(self, batches: Sequence[Batch]) -> None:
        """Batches were committed, including control batches."""

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """A new epoch has begun, or its leader has become known. The leader itself is called once it has received everything committed
        before."""

    def on_shut_down(self) -> None:
        """The Raft node has shut down. No more calls follow."""


class RaftManager:
    """One node. The constructor locks the log directory (unless its owner holds the lock) and loads the log. Then call `register`, then
    `start`.

    The constructor raises LockHeldError, LoadError, DecodeError (`quorum-state`) or OSError. All methods are for the loop's thread.
    """

    def __init__(
        self,
        loop: Loop,
        identity: Identity,
        files: Files,
        log_dir: str,
        *,
        log_settings: MetadataLogSettings | None = None,
        lock_directory: bool = True,
    ) -> None:
        self.identity = identity
        self.on_fault: Callable[[KopsError | OSError], object] | None = None
        self._loop = loop
        self._scheduler = Scheduler(loop.now_ms, on_error=_tell_failed_task)
        self._listeners: list[RaftListener] = []
        self._delivered_offset = 0
        self._delivered_leader: LeaderAndEpoch | None = None
        self._actions: deque[Action] = deque()
        self._is_acting = self._is_closed = False
        self._timer: Timer | None = None
        self._on_shut_down: Callable[[bool], object] | None = None
        self.side_work = SideWork(loop.in_thread)
        """The node's work in side threads: syncs of the log, and snapshots. `close` waits for it."""
        self._lock = files.lock(log_dir) if lock_directory else None
        try:
            settings = log_settings or MetadataLogSettings()
            self.log = KafkaRaftLog.open(files, log_dir, settings, now_ms=loop.now_ms, scheduler=self._scheduler)
            try:
                elections = FileElectionStore(files, posixpath.join(log_dir, METADATA_DIR))
                # The first fetch or flush acknowledges records that a killed process left, so they must be durable by then.
                self.log.flush()
                self.log.flush_aside = self._flush_aside
                self.node = RaftNode(replace(identity, timestamp=self._timestamp), self.log, elections, self._now_ms())
            except BaseException:
                self.log.abandon()
                raise
        except BaseException:
            self._unlock()
            raise
        self._peers = Peers(loop, draw=lambda: identity.draw(_DRAWS) / _DRAWS, settings=_peer_settings(identity))

    # life -------------------------------------------------------------------------------------------------------------------------

    @property
    def is_closed(self) -> bool:
        """Whether files and connections are closed."""
        return self._is_closed

    def start(self) -> None:
        """Join the quorum. From now on requests may be handled."""
        self._do(self.node.start(self._now_ms()))

    def shut_down(self, timeout_ms: int, done: Callable[[bool], object]) -> None:
        """Stop gracefully: a leader resigns and waits for the next one. Calls `done(timed_out)` once. The caller still has to call
        `close`."""
        self._on_shut_down = done
        self._do(self.node.shut_down(timeout_ms, self._now_ms()))

    def hurry(self) -> None:
        """End the wait of a shutdown that has begun."""
        self._do(self.node.shut_down(0, self._now_ms()))

    def close(self, *, cleanly: bool = True) -> None:
        """Close connections and files and release the lock. To other nodes this node is gone. A second call does nothing.

        If not `cleanly`, files stay as they are, as after `kill -9` or because the disk has failed. A clean close waits for the side
        threads. It fails if a sync has failed, because the system reports that only once. Such a failure is handled like any other error.
        """
        if self._is_closed:
            return
        self._is_closed = True
        self._actions.clear()
        if self._timer is not None:
            self._timer.cancel()
        self._peers.close()
        self.side_work.end()
        # The holder of the directory's lock waits.
        is_quiet = (not cleanly and self._lock is None) or self.side_work.join(None if cleanly else PATIENCE_WITH_THREADS_S)
        try:
            self._close_log(cleanly)
        finally:
            if is_quiet:
                self._unlock()
            elif self._lock is not None:
                log.warning("A side thread still waits for the disk; the directory of the metadata log stays locked until it ends")
                self._loop.in_thread(self._unlock_later, lambda future: future.result())

    def _close_log(self, cleanly: bool) -> None:
        try:
            if cleanly:
                self.side_work.tell_failures()
                self._scheduler.run_due()
                self._scheduler.shutdown()
                self.log.close()
                return
        except (KopsError, OSError) as error:
            self._abandon_log()
            if self.on_fault is None:
                raise
            self.on_fault(error)
            return
        self._abandon_log()

    def _abandon_log(self) -> None:
        self._scheduler.shutdown()
        self.log.abandon()

    def _unlock_later(self) -> None:
        self.side_work.join()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()

    # listeners --------------------------------------------------------------------------------------------------------------------

    def register(self, listener: RaftListener) -> None:
        """Deliver everything committed to a listener, beginning with what other listeners have received already."""
        self._listeners.append(listener)
        next_offset = self._start_of_catch_up(listener)
        while next_offset < self._delivered_offset:
            batches = read_batches(self.log.read(next_offset, MAX_BATCH_SIZE, committed=True))
            had = [batch for batch in batches if batch.last_offset < self._delivered_offset]
            assert had, f"nothing is committed at offset {next_offset} below {self._delivered_offset}"
            listener.on_committed(had)
            next_offset = had[-1].last_offset + 1
        if self._delivered_leader is not None:
            listener.on_leader_change(self._delivered_leader)

    def _start_of_catch_up(self, listener: RaftListener) -> int:
        """Give a new listener the latest snapshot that the other listeners are past. Returns the offset after it."""
        for snapshot_id in (self.log.latest_snapshot_id, self.log.earliest_snapshot_id):
            if snapshot_id is not None and snapshot_id.offset <= self._delivered_offset and self._delivered_offset:
                snapshot = self.log.read_snapshot(snapshot_id)
                assert snapshot is not None, f"snapshot {snapshot_id} is gone"
                listener.on_snapshot(snapshot)
                return snapshot_id.offset
        # If the log starts after the last batch that the other listeners received, all of them are about to get a snapshot.
        return self._delivered_offset if self.log.start_offset > 0 else 0

    # requests and time ------------------------------------------------------------------------------------------------------------

    def handle(self, context: RequestContext) -> None:
        """Handle a request of the quorum's APIs (`RAFT_REQUESTS`). The answer may come later."""
        if self._is_closed:
            context.close_connection()
            return
        asked = context.request
        request = Request(context, asked.message, asked.version, context.listener_name)
        self._run(lambda: self.node.on_request(request, self._now_ms()))

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._now_ms()
        self._scheduler.run_due()
        self._run(lambda: self.node.poll(now_ms) if now_ms >= self.node.wake_up_ms else [])

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_ms = self.node.wake_up_ms - self._now_ms()
        if (task_ms := self._scheduler.next_due_ms) is not None:
            delay_ms = min(delay_ms, task_ms - self._loop.now_ms())
        self._timer = self._loop.call_later(delay_ms, self._on_timer)

    def _now_ms(self) -> int:
        """The quorum's monotonic clock: a change of the wall clock must not delay or hasten an election. In Kafka it does."""
        return int(self._loop.monotonic_ms())

    def _timestamp(self, now_ms: int) -> int:
        """The wall-clock time of a `now_ms` of the quorum, by the present difference of the two clocks."""
        return now_ms + self._loop.now_ms() - self._now_ms()

    # calls of the controller ------------------------------------------------------------------------------------------------------

    def prepare_append(self, epoch: int, records: Sequence[bytes]) -> int:
        """See `RaftNode.prepare_append`."""
        return self.node.prepare_append(epoch, records, self._now_ms())

    def schedule_append(self) -> None:
        """See `RaftNode.schedule_append`."""
        self._run(lambda: self.node.schedule_append(self._now_ms()))

    def resign(self, epoch: int) -> None:
        """See `RaftNode.resign`."""
        self._do(self.node.resign(epoch, self._now_ms()))

    def upgrade_kraft_version(self, epoch: int, version: int, *, validate_only: bool = False) -> None:
        """See `RaftNode.upgrade_kraft_version`."""
        self._do(self.node.upgrade_kraft_version(epoch, version, self._now_ms(), validate_only=validate_only))

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, last_contained_log_timestamp: int) -> SnapshotWriter | None:
        """See `RaftNode.create_snapshot`. Raises LoadError if the id is not the end of a committed batch, see
        `KafkaRaftLog.check_snapshot_id`."""
        if snapshot_id.offset >= self.log.start_offset:
            self.log.check_snapshot_id(snapshot_id)
        return self.node.create_snapshot(snapshot_id, last_contained_log_timestamp, self._now_ms())

    # flushes ----------------------------------------------------------------------------------------------------------------------

    def _flush_aside(self, flush: Flush) -> None:
        self.side_work.add(flush.run, lambda future: self._flushed(flush, future))

    def _flushed(self, flush: Flush, future: Future[None]) -> None:
        if self._is_closed:
            # A failure that was not reported before the close.
            self.log.end_flush(flush, future.result)
            return

        def step() -> list[Action]:
            self.log.end_flush(flush, future.result)
            return self.node.on_flushed(self._now_ms())

        self._run(step)

    # actions ----------------------------------------------------------------------------------------------------------------------

    def _run(self, step: Callable[[], list[Action]]) -> None:
        """Give the core an input and carry out its actions. A failure ends this node and is reported to `on_fault`."""
        try:
            self._do(step())
        except (KopsError, OSError) as error:
            if self.on_fault is None:
                raise
            self.close(cleanly=False)
            self.on_fault(error)

    def _do(self, actions: list[Action]) -> None:
        """Carry out actions. Actions that a listener causes meanwhile are queued after them."""
        if self._is_closed:
            return
        self._actions.extend(actions)
        if self._is_acting:
            return
        self._is_acting = True
        try:
            while self._actions:
                self._act(self._actions.popleft())
        finally:
            self._is_acting = False
        if not self._is_closed:
            self._set_timer()

    def _act(self, action: Action) -> None:
        match action:
            case SendRequest():
                self._send(action)
            case Respond(token, message):
                token.respond(message)
            case Committed(batches):
                self._delivered_offset = batches[-1].last_offset + 1
                self._tell(lambda listener: listener.on_committed(batches))
            case LoadSnapshot(snapshot_id):
                snapshot = self.log.read_snapshot(snapshot_id)
                assert snapshot is not None, f"snapshot {snapshot_id} is gone"
                self._delivered_offset = snapshot_id.offset
                self._tell(lambda listener: listener.on_snapshot(snapshot))
            case LeaderChanged(leader):
                self._delivered_leader = leader
                self._tell(lambda listener: listener.on_leader_change(leader))
            case ShutDown(timed_out):
                self._tell(lambda listener: listener.on_shut_down())
                if self._on_shut_down is not None:
                    self._on_shut_down(timed_out)

    def _tell(self, tell: Callable[[RaftListener], None]) -> None:
        for listener in list(self._listeners):
            tell(listener)

    def _send(self, action: SendRequest) -> None:
        peer = self._peers.get(*action.node)
        peer.send(action.message, partial(self._on_answer, action), timeout_ms=self.identity.settings.request_timeout_ms)

    def _on_answer(self, asked: SendRequest, result: Message) -> None:
        if self._is_closed:
            return
        if isinstance(result, ApiError):
            log.debug("Node %s: no answer from %s: %s", self.identity.node_id, asked.node, result)
            name = "UNSUPPORTED_VERSION" if result.name == "UNSUPPORTED_VERSION" else "BROKER_NOT_AVAILABLE"
            result = error_response(asked.message, name)
        self._run(lambda: self.node.on_response(asked.node, asked.correlation_id, result, self._now_ms()))


def _peer_settings(identity: Identity) -> PeerSettings:
    return PeerSettings(
        client_id=f"raft-client-{-1 if identity.node_id is None else identity.node_id}",
        request_timeout_ms=identity.settings.request_timeout_ms,
        reconnect_backoff_max_ms=_RECONNECT_BACKOFF_MAX_MS,
        max_in_flight_requests_per_connection=1,
        send_buffer_bytes=-1,
    )


def _tell_failed_task(name: str, error: Exception) -> None:
    log.error("Task %s of the metadata log failed: %s", name, error)
