"""The frame of the controller. It claims and resigns leadership, handles requests, replays records, and runs periodic tasks.

Sources: Kafka's QuorumController, OffsetControlManager.

    result = controller.handle(context, request, now_ms)
    # append result.records; replay each at its offset; then
    controller.appended(result, last_offset)
    # send result.response once last_offset is committed (and tell controller.committed)

The driver replays every record exactly once. An active controller replays its own records when they are appended, a standby replays
committed records. `on_resign` undoes replayed records that were not committed, so the log need not be read again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.controller.activation import activation_result
from kops.metadata.controller.base.result import ControllerResult
from kops.metadata.controller.error_responses import error_response
from kops.metadata.controller.parts import Parts
from kops.metadata.controller.periodic import PeriodicTask, PeriodicTasks
from kops.metadata.controller.requests import Requests
from kops.protocol.messages import AbortTransactionRecord, BeginTransactionRecord, BrokerHeartbeatRequest, EndTransactionRecord, NoOpRecord

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.metadata.controller.base.result import Record, RequestContext
    from kops.metadata.controller.cluster.settings import ControllerSettings, Draws
    from kops.metadata.metadata_version import MetadataVersion
    from kops.protocol.declaration import Message

_NONE: Final = -1


class Controller:
    """One node's controller. `leader_id` is the leader that this node knows; `parts` is its knowledge of the cluster.

    `kraft_version()` returns the raft layer's level of kraft.version. `upgrade_kraft_version(level, validate_only)` upgrades it or raises
    ApiError; it is None if no upgrade is possible.
    """

    def __init__(
        self,
        node_id: int,
        settings: ControllerSettings,
        draws: Draws,
        *,
        kraft_version: Callable[[], int] = int,
        upgrade_kraft_version: Callable[[int, bool], None] | None = None,
    ) -> None:
        self.node_id = node_id
        self.leader_id: int | None = None
        self._settings = settings
        self._draws = draws
        self._kraft_version = kraft_version
        self._upgrade_kraft_version = upgrade_kraft_version
        self._epoch = _NONE
        self.reset()

    def reset(self) -> None:
        """Forget everything before a snapshot is loaded. The snapshot's records are replayed with the offset of the last record that it
        contains."""
        assert not self.is_active, "a leader does not load snapshots"
        self.parts = parts = Parts(self.node_id, self._settings, self._draws)
        parts.features.kraft_version = self._kraft_version
        parts.features.upgrade_kraft_version = self._upgrade_kraft_version
        self._requests = Requests(parts, self._settings)
        self._tasks = PeriodicTasks(self._periodic_tasks(parts))
        self._last_committed_offset = _NONE
        self._last_stable_offset = _NONE
        self._next_write_offset = _NONE
        self._transaction_start = _NONE
        self._version_before_transaction: MetadataVersion | None = None

    @property
    def is_active(self) -> bool:
        """Whether this controller is active."""
        return self._epoch != _NONE

    @property
    def epoch(self) -> int:
        """The epoch in which it leads, or -1 if it does not lead."""
        return self._epoch

    @property
    def last_stable_offset(self) -> int:
        """The last committed offset outside of an open transaction."""
        return self._last_stable_offset

    # Leadership

    def on_claim(self, epoch: int, next_write_offset: int, now_ms: int) -> ControllerResult:
        """Become leader. Everything before `next_write_offset` has been replayed. The result's records must be appended first.

        In a later epoch of the same leader only the epoch changes.
        """
        self.leader_id = self.node_id
        was_active, self._epoch = self.is_active, epoch
        if was_active:
            return ControllerResult()
        self._next_write_offset = next_write_offset
        self.parts.cluster.activate(now_ms)
        self._tasks.activate(now_ms)
        in_transaction = self._transaction_start != _NONE
        version = self._version_before_transaction if in_transaction else self.parts.features.maybe_metadata_version
        minimum = self.parts.configs.static_min_insync_replicas
        return activation_result(self._settings.bootstrap, version, minimum, in_transaction=in_transaction)

    def on_resign(self, leader_id: int | None = None) -> None:
        """Resign. This undoes records that were appended but not committed; they are replayed if they are ever committed.

        The caller answers all waiting requests with `not_controller`.
        """
        self.leader_id = leader_id
        if not self.is_active:
            return
        self._epoch = _NONE
        self._next_write_offset = _NONE
        self.parts.cluster.deactivate()
        self._tasks.deactivate()
        self.parts.timeline.revert_to(self._last_stable_offset)
        if self._transaction_start > self._last_committed_offset:
            self._transaction_start = _NONE

    def not_controller(self) -> ApiError:
        """Return the error of a node that does not lead."""
        if self.leader_id is None or self.leader_id == self.node_id:
            return ApiError("NOT_CONTROLLER", "No controller appears to be active.")
        return ApiError("NOT_CONTROLLER", f"The active controller appears to be node {self.leader_id}.")

    # Requests

    def handle(self, context: RequestContext, message: Message, now_ms: int) -> ControllerResult:
        """Return the result of a request. Errors become its response. The records must be appended and replayed before the next request."""
        try:
            if not self.is_active:
                raise self.not_controller()
            if isinstance(message, BrokerHeartbeatRequest):
                self.parts.cluster.heartbeats.contact(message.broker_id, message.broker_epoch, now_ms)
            return self._requests.handle(context, message, self._next_write_offset, now_ms)
        except ApiError as error:
            return ControllerResult(response=error_response(message, error))

    # Records

    def replay(self, message: Message, offset: int) -> None:
        """Replay a record at its offset. Raises ValueError if it contradicts earlier records."""
        self._next_write_offset = offset + 1 if self.is_active else _NONE
        if isinstance(message, BeginTransactionRecord):
            if self._transaction_start != _NONE:
                raise ValueError(f"a transaction begins at {offset} within another one that begins at {self._transaction_start}")
            self._transaction_start = offset
            self._version_before_transaction = self.parts.features.maybe_metadata_version
        elif isinstance(message, EndTransactionRecord | AbortTransactionRecord):
            if self._transaction_start == _NONE:
                raise ValueError(f"a transaction ends at {offset}, but none has begun")
            if isinstance(message, AbortTransactionRecord):
                self.parts.timeline.revert_to(self._transaction_start - 1)
            self._transaction_start = _NONE
        else:
            self.parts.replay(message, offset)

    def appended(self, result: ControllerResult, last_offset: int) -> None:
        """Record that all records of a result were appended and replayed. `last_offset` is the offset of the log's last record."""
        if result.shutting_down is not None:
            self.parts.cluster.heartbeats.begin_controlled_shutdown(result.shutting_down, last_offset)

    def committed(self, last_offset: int) -> None:
        """Record that everything up to this offset is committed and has been replayed."""
        self._last_committed_offset = last_offset
        stable = last_offset if self._transaction_start == _NONE else min(self._transaction_start - 1, last_offset)
        if stable > self._last_stable_offset:
            self._last_stable_offset = stable
            self.parts.timeline.forget_up_to(stable)

    # Time

    def tick(self, now_ms: int) -> ControllerResult | None:
        """Return the records of the first due task that has any. Append and replay them, and call this again until it returns None."""
        records = self._tasks.run_due(now_ms)
        return ControllerResult(records) if records else None

    @property
    def next_tick_ms(self) -> int | None:
        """The time at which `tick` has something to do, or None while this node does not lead."""
        return self._tasks.next_due_ms

    def _periodic_tasks(self, parts: Parts) -> list[PeriodicTask]:
        settings, elections = self._settings, parts.elections
        unclean_ms, imbalance_ms = settings.unclean_leader_election_check_interval_ms, settings.leader_imbalance_check_interval_ms
        tasks = [
            PeriodicTask("maybeFenceStaleBroker", max(1, settings.session_timeout_ms // 8), parts.brokers.fence_one_stale),
            PeriodicTask("electUnclean", unclean_ms, lambda _: elections.elect_unclean()),
        ]
        if imbalance_ms is not None:
            tasks.append(PeriodicTask("electPreferred", imbalance_ms, lambda _: elections.balance()))
        if settings.max_idle_interval_ms is not None:
            tasks.append(PeriodicTask("writeNoOpRecord", settings.max_idle_interval_ms, lambda _: _no_op()))
        return tasks


def _no_op() -> tuple[list[Record], bool]:
    """Return the no-op record, which shows followers and brokers that the log continues."""
    return [(NoOpRecord(), 0)], False
