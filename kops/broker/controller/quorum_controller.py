"""Runs the controller above the Raft node: writes its records to the log, and holds back its answers until they are committed.

Source: Kafka's QuorumController (its write events and its QuorumMetaLogListener), DeferredEventQueue. There is no event queue: a request is
handled at once. Records appended during one turn of the loop are written at its end, so requests that arrive together share one batch and
one fsync. After an unexpected error the controller resigns and the request gets an error. A record that contradicts the log, or a failing
disk, propagates out of the loop and ends the node.
"""

from __future__ import annotations

import logging
from collections import deque
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from kops.broker.quorum.committed_records import snapshot_records
from kops.errors import ApiError
from kops.metadata.controller.base.result import ControllerResult
from kops.metadata.controller.error_responses import error_response
from kops.metadata.image.parts.changes import contradiction
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID
from kops.metadata.records import write_record
from kops.storage.failures.load_errors import LoadError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kops.broker.network.events.loop import Loop, Timer
    from kops.broker.quorum.committed_records import CommittedRecords
    from kops.broker.quorum.raft_manager import RaftManager
    from kops.metadata.controller.base.result import RequestContext
    from kops.metadata.controller.controller import Controller
    from kops.metadata.raft.log.log import SnapshotSource
    from kops.metadata.raft.voters.replica import LeaderAndEpoch
    from kops.protocol.declaration import Message
    from kops.records import Batch

    Done = Callable[[Message], object]

Generated = TypeVar("Generated")

log = logging.getLogger(__name__)

MAX_RECORDS_PER_BATCH: Final = 10_000


class _Deferred(NamedTuple):
    """An answer that waits until `offset` is committed."""

    offset: int
    request: Message
    response: Message
    done: Done


class QuorumController:
    """A RaftListener. `is_active` says whether it leads, as far as it knows. All methods are for the loop's thread."""

    def __init__(self, loop: Loop, raft: RaftManager, controller: Controller, records: CommittedRecords) -> None:
        self.controller = controller
        self._loop = loop
        self._raft = raft
        self._records = records
        self._deferred: deque[_Deferred] = deque()
        self._timer: Timer | None = None
        self._is_scheduled = self._is_handling = self._is_shut_down = False
        self._last_write_offset = -1

    @property
    def is_active(self) -> bool:
        """Whether it leads, as far as it knows."""
        return self.controller.is_active

    @property
    def deferred_count(self) -> int:
        """The number of requests whose answers wait for a commit."""
        return len(self._deferred)

    # requests ---------------------------------------------------------------------------------------------------------------------

    def handle(self, context: RequestContext, request: Message, done: Done) -> None:
        """Handle a request of the controller's APIs. Calls `done` once with the response: at once if it need not wait for a commit."""
        if self._is_shut_down:
            done(error_response(request, ApiError("NOT_CONTROLLER", "The controller is shutting down.")))
            return
        self._is_handling = True
        try:
            result = self._attempt(type(request).__name__, lambda: self.controller.handle(context, request, self._now_ms()))
            error = result if isinstance(result, ApiError) else self._append(result)
        finally:
            self._is_handling = False
        if error is not None:
            done(error_response(request, error))
            return
        assert isinstance(result, ControllerResult)
        assert result.response is not None, f"no response to {type(request).__name__}"
        if self._last_write_offset > self.controller.last_stable_offset:
            # A response that writes nothing may depend on uncommitted records, too.
            self._deferred.append(_Deferred(self._last_write_offset, request, result.response, done))
        else:
            done(result.response)

    def _attempt(self, name: str, generate: Callable[[], Generated]) -> Generated | ApiError:
        """Let the controller process an event. Nothing is written yet. After an unexpected error this controller resigns: another one, or
        this one after a new election, may succeed."""
        try:
            return generate()
        except (LoadError, OSError):
            raise
        except Exception:
            log.exception("[QuorumController id=%d] Unexpected error in %s", self.controller.node_id, name)
            error = ApiError("UNKNOWN_SERVER_ERROR")
            return self._renounce(error) if self.is_active else error

    def _append(self, result: ControllerResult) -> ApiError | None:
        """Append and replay a result's records. Returns the error if that failed; then this controller has resigned."""
        records = result.records
        size = len(records) if result.is_atomic else MAX_RECORDS_PER_BATCH
        if size > MAX_RECORDS_PER_BATCH:
            return self._renounce(ApiError("UNKNOWN_SERVER_ERROR", f"{size} records in one atomic batch"))
        for start in range(0, len(records), size or 1):
            piece = records[start : start + size]
            try:
                last_offset = self._raft.prepare_append(self.controller.epoch, [write_record(*record) for record in piece])
            except ApiError as error:
                return self._renounce(error)
            for offset, (message, _) in enumerate(piece, last_offset - len(piece) + 1):
                self._replay(message, offset)
            self._last_write_offset = last_offset
        self.controller.appended(result, self._last_write_offset)
        if records:
            self._schedule_append()
        return None

    def _schedule_append(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._let_go)

    def _let_go(self) -> None:
        self._is_scheduled = False
        # If it no longer leads, the prepared records were dropped with its epoch.
        if self.is_active and self._raft.node.is_leader:
            self._raft.schedule_append()

    # leadership -------------------------------------------------------------------------------------------------------------------

    def on_leader_change(self, leader: LeaderAndEpoch) -> None:
        """Claim leadership or give it up."""
        controller = self.controller
        if leader.leader_id == controller.node_id:
            self._claim(leader.epoch)
        elif controller.is_active:
            log.warning("[QuorumController id=%d] In epoch %d the leader is %s", controller.node_id, leader.epoch, leader.leader_id)
            self._resign(leader.leader_id)
        else:
            controller.leader_id = leader.leader_id

    def _claim(self, epoch: int) -> None:
        end_offset = self._raft.log.end_offset
        if not self.is_active:
            words = "[QuorumController id=%d] Becoming the active controller at epoch %d, next write offset %d"
            log.info(words, self.controller.node_id, epoch, end_offset)
            self._last_write_offset = end_offset - 1
        self._append(self.controller.on_claim(epoch, end_offset, self._now_ms()))
        self._set_timer()

    def _resign(self, leader_id: int | None) -> None:
        self.controller.on_resign(leader_id)
        # No answer may wait for an uncommitted offset of an earlier epoch.
        self._last_write_offset = -1
        self._set_timer()
        waiting, self._deferred = self._deferred, deque()
        error = self.controller.not_controller()
        for one in waiting:
            one.done(error_response(one.request, error))

    def _renounce(self, error: ApiError) -> ApiError:
        """Resign: the log accepts no more records of this epoch, or the controller failed to make any. Returns the error for the
        request."""
        log.warning("[QuorumController id=%d] Renouncing the leadership: %s", self.controller.node_id, error)
        epoch = self.controller.epoch
        self._resign(None)
        self._loop.call_soon(lambda: self._raft.resign(epoch))
        if error.name == "NOT_LEADER_OR_FOLLOWER":
            return self.controller.not_controller()
        return ApiError("UNKNOWN_SERVER_ERROR", error.message)

    # what is committed ------------------------------------------------------------------------------------------------------------

    def on_snapshot(self, snapshot: SnapshotSource) -> None:
        """Replace the state with a snapshot."""
        if snapshot.snapshot_id == BOOTSTRAP_SNAPSHOT_ID:
            return  # It has only the voters.
        self.controller.reset()
        last_offset = snapshot.snapshot_id.offset - 1
        for message in snapshot_records(snapshot):
            self._replay(message, last_offset)
        self.controller.committed(last_offset)

    def on_committed(self, batches: Sequence[Batch]) -> None:
        """Handle committed records: a leader sends the responses that waited for them; a standby replays them."""
        controller = self.controller
        if controller.is_active:
            for batch in batches:
                controller.committed(batch.last_offset)
            if self._is_handling:
                self._loop.call_soon(self._complete)
            else:
                self._complete()
            return
        for loaded in self._records.of(batches):
            for offset, message in enumerate(loaded.records, loaded.base_offset):
                self._replay(message, offset)
            controller.committed(loaded.last_offset)

    def _replay(self, message: Message, offset: int) -> None:
        """Replay a record. A controller that can't follow its own log has to end: raises DecodeError."""
        try:
            self.controller.replay(message, offset)
        except ValueError as error:
            raise contradiction(f"the record at offset {offset} of the metadata log can't be replayed: {error}") from error

    def _complete(self) -> None:
        stable = self.controller.last_stable_offset
        while self._deferred and self._deferred[0].offset <= stable:
            one = self._deferred.popleft()
            one.done(one.response)

    # time -------------------------------------------------------------------------------------------------------------------------

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self.controller.next_tick_ms
        if due_ms is not None and not self._is_shut_down:
            self._timer = self._loop.call_later(due_ms - self._loop.monotonic_ms(), self._tick)

    def _now_ms(self) -> int:
        """The controller's monotonic clock: a change of the wall clock must not end or prolong brokers' sessions."""
        return int(self._loop.monotonic_ms())

    def _tick(self) -> None:
        self._timer = None
        while (result := self._attempt("a periodic task", lambda: self.controller.tick(self._now_ms()))) is not None:
            if isinstance(result, ApiError):
                return
            self._append(result)
        self._set_timer()

    # the end ----------------------------------------------------------------------------------------------------------------------

    def on_shut_down(self) -> None:
        """The Raft node has shut down."""
        self.shut_down()

    def shut_down(self) -> None:
        """Stop leading. Waiting requests are answered as by a node that does not lead. A second call does nothing."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self._resign(None)
