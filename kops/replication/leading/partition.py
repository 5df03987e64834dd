"""One partition on this broker: its role, its replicas, its in-sync set, and its appends until they are replicated.

Source: Kafka's Partition (KIP-101, KIP-497, KIP-841, KIP-903). No method waits. A change of the ISR goes to `AlterPartitionQueue`, which
calls back with the answer. `DelayedOperations` checks the operations that wait for the high watermark. `PartitionReads` has the reading
half. Answers for a client are ApiError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mypy_extensions import mypyc_attr

from kops.errors import ApiError, KopsError
from kops.records.log_offsets import LogOffsetMetadata, TopicPartition, UnexpectedAppendOffsetError
from kops.records.validation.validate import AppendOrigin
from kops.replication.leading.isr import (
    RECOVERED,
    UNKNOWN_BROKER_EPOCH,
    Assignment,
    BrokerState,
    CommittedIsr,
    IsrState,
    LeaderAndIsr,
    PartitionRegistration,
    PendingChange,
    PendingExpandIsr,
    PendingShrinkIsr,
    ProposedIsr,
)
from kops.replication.leading.partition_reads import PartitionReads
from kops.replication.leading.replica import Replica
from kops.replication.log import AppendInfo, Brokers, LogKeeper

if TYPE_CHECKING:
    from kops.protocol.primitives import Buffer
    from kops.replication.log import ReplicaLog

TRANSACTION_VERSION_UNKNOWN = -1
HIGH_WATERMARK = -1
"""The offset in a DeleteRecords that represents the high watermark."""
REJECTED = frozenset({"OPERATION_NOT_ATTEMPTED", "INELIGIBLE_REPLICA"})
"""Errors after which the controller has changed nothing and the partition epoch is right."""
SUPERSEDED = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "UNKNOWN_TOPIC_ID",
        "FENCED_LEADER_EPOCH",
        "INVALID_UPDATE_VERSION",
        "INVALID_REQUEST",
        "NEW_LEADER_ELECTED",
    }
)
"""Errors after which new metadata will determine the state."""


class AlterPartitionQueue(Protocol):
    """Sends ISR changes to the controller (`kops.replication.leading.alter_partition`). `done` gets the answer, or the name of an error."""

    def submit(self, topic_id: bytes, partition: int, proposed: ProposedIsr, done: Callable[[LeaderAndIsr | str], None]) -> None: ...


class DelayedOperations(Protocol):
    """The operations that wait for this partition (`kops.replication.waiting.delayed`)."""

    def check_and_complete_all(self, key: TopicPartition) -> None: ...
    @property
    def delayed_delete_count(self) -> int: ...


class Surroundings(NamedTuple):
    """The objects that all partitions of a broker share. `broker_epoch` returns the epoch of this broker's registration."""

    broker_id: int
    broker_epoch: Callable[[], int]
    now_ms: Callable[[], int]
    brokers: Brokers
    logs: LogKeeper
    alter_partition: AlterPartitionQueue
    delayed: DelayedOperations
    replica_lag_time_max_ms: int = 30_000
    on_log_start: Callable[[TopicPartition], object] = lambda key: None
    """Called with a partition whose log start offset has increased."""


@mypyc_attr(acyclic=True)
class LeaderAppend:
    """An append's result, and whether it increased the high watermark (then the operations that wait for the partition must be checked)."""

    __slots__ = ("high_watermark_increased", "info")

    def __init__(self, info: AppendInfo, high_watermark_increased: bool) -> None:
        self.info = info
        self.high_watermark_increased = high_watermark_increased


class DeletedRecords(NamedTuple):
    """The result of a DeleteRecords on the leader: the requested offset, and the lowest start offset of the live replicas."""

    requested_offset: int
    low_watermark: int


@mypyc_attr(allow_interpreted_subclasses=True)
class Partition(PartitionReads):
    """A leader or follower on this broker. `log` is None while there is none, and `future_log` is a copy into another directory."""

    def __init__(self, topic_partition: TopicPartition, topic_id: bytes, around: Surroundings) -> None:
        super().__init__(topic_partition, around.broker_id)
        self.topic_id = topic_id
        self.around = around
        self.partition_epoch = -1
        self.isr_state: IsrState = CommittedIsr()
        self.assignment = Assignment()
        self.remote_replicas: dict[int, Replica] = {}
        self.isr_expands = self.isr_shrinks = self.failed_isr_updates = 0
        self.on_deleted: list[Callable[[TopicPartition], None]] = []
        self.on_failed: list[Callable[[TopicPartition], None]] = []
        self.on_following: list[Callable[[TopicPartition], None]] = []
        self._high_watermark_listeners: list[Callable[[int], object]] = []

    def __str__(self) -> str:
        isr = ",".join(map(str, sorted(self.isr_state.isr)))
        replicas = ",".join(map(str, self.assignment.replicas))
        name = f"{self.topic_partition.topic}-{self.topic_partition.partition}"
        return f"{name} leader={self.leader_id} epoch={self.leader_epoch}/{self.partition_epoch} replicas={replicas} isr={isr}"

    def _on_log_start(self) -> None:
        self.disturb()
        self.around.on_log_start(self.topic_partition)

    def add_high_watermark_listener(self, listener: Callable[[int], object]) -> None:
        """Call `listener` with the high watermark whenever it is set. It may not change the partition."""
        self._high_watermark_listeners.append(listener)
        if self.log is not None:
            self.log.on_high_watermark = self._tell_high_watermark

    def remove_high_watermark_listener(self, listener: Callable[[int], object]) -> None:
        """Stop calling a listener."""
        if listener in self._high_watermark_listeners:
            self._high_watermark_listeners.remove(listener)
        if not self._high_watermark_listeners and self.log is not None:
            self.log.on_high_watermark = None

    def _tell_high_watermark(self, offset: int) -> None:
        for listener in tuple(self._high_watermark_listeners):
            listener(offset)

    # state ------------------------------------------------------------------------------------------------------------------------

    @property
    def in_sync_replica_ids(self) -> frozenset[int]:
        """The committed ISR, which is empty on a follower."""
        return self.isr_state.isr

    def is_in_sync(self, replica_id: int) -> bool:
        return replica_id in self.isr_state.isr

    @property
    def is_isr_change_in_flight(self) -> bool:
        """Whether a proposed ISR is waiting for the controller's answer."""
        return not isinstance(self.isr_state, CommittedIsr)

    @property
    def is_under_replicated(self) -> bool:
        """Whether a replica is out of sync."""
        return self.is_leader and self.assignment.replication_factor > len(self.isr_state.isr)

    @property
    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than `min.insync.replicas` requires."""
        log = self.leader_log
        return log is not None and len(self.isr_state.isr) < self._effective_min_isr(log)

    @property
    def is_at_min_isr(self) -> bool:
        """Whether just enough replicas are in sync."""
        log = self.leader_log
        return log is not None and len(self.isr_state.isr) == self._effective_min_isr(log)

    def _effective_min_isr(self, log: ReplicaLog) -> int:
        return min(log.config.min_insync_replicas, len(self.remote_replicas) + 1)

    # roles ------------------------------------------------------------------------------------------------------------------------

    def make_leader(self, registration: PartitionRegistration, open_log: Callable[[], ReplicaLog | None]) -> bool:
        """Become or stay leader according to the metadata, and return whether this broker was not the leader before.

        `open_log` creates or finds the log in its assigned directory. It is called if there is no log yet. It returns None if the log may
        be in an offline directory, which raises NOT_LEADER_OR_FOLLOWER. Metadata older than the known state is ignored.
        """
        if registration.partition_epoch < self.partition_epoch:
            return False
        self.disturb()
        now_ms = self.around.now_ms()
        is_new_leader = not self.is_leader
        isr = frozenset(registration.isr)
        self._update_assignment(registration)
        self._keep_followers(registration)
        if is_new_leader or not self._is_change_in_flight_from(registration.partition_epoch):
            # A leader counts as recovered as soon as it leads.
            self.isr_state = CommittedIsr(isr, RECOVERED)
        if self.log is None:
            self.log = open_log()
        log = self.local_log
        log.on_log_start = self._on_log_start
        if registration.leader_epoch > self.leader_epoch:
            end_offset = log.log_end_offset
            # After quick changes of leaders, followers may have entries of later epochs than any in this log. They ask for the ends of
            # those epochs, so an epoch is recorded at its beginning and not at its first record.
            log.epochs.assign(registration.leader_epoch, end_offset)
            for replica in self.remote_replicas.values():
                replica.reset(now_ms, end_offset, is_new_leader=is_new_leader, is_in_sync=replica.broker_id in isr)
            self.leader_epoch = registration.leader_epoch
            self.leader_epoch_start_offset = end_offset
        self.partition_epoch = registration.partition_epoch
        self.leader_id = self.around.broker_id
        if self._maybe_increment_high_watermark(log, now_ms):
            self.complete_delayed()
        return is_new_leader

    def _is_change_in_flight_from(self, partition_epoch: int) -> bool:
        """Whether an ISR was proposed in this partition epoch.

        The metadata often repeats an answer of the controller while the next change is already in flight. Kafka then forgets that change.
        If the controller accepts it, the high watermark may meanwhile pass a replica that has joined and may be elected.
        """
        return self.is_isr_change_in_flight and partition_epoch == self.partition_epoch

    def make_follower(self, registration: PartitionRegistration, open_log: Callable[[], ReplicaLog | None]) -> bool:
        """Become or stay follower according to the metadata, and return whether the leader epoch is new and fetching must start again.

        Everything else is as in `make_leader`.
        """
        if registration.partition_epoch < self.partition_epoch:
            return False
        self.disturb()
        is_new_epoch = registration.leader_epoch > self.leader_epoch
        self.leader_id = registration.leader
        self.leader_epoch = registration.leader_epoch
        self.leader_epoch_start_offset = None
        self.partition_epoch = registration.partition_epoch
        self._update_assignment(registration)
        self.remote_replicas.clear()
        self.isr_state = CommittedIsr(frozenset(), registration.leader_recovery_state)
        if self.log is None:
            self.log = open_log()
        self.local_log.on_log_start = self._on_log_start
        return is_new_epoch

    def _update_assignment(self, registration: PartitionRegistration) -> None:
        self.assignment = Assignment(
            tuple(registration.replicas), tuple(registration.adding_replicas), tuple(registration.removing_replicas)
        )

    def _keep_followers(self, registration: PartitionRegistration) -> None:
        followers = [replica for replica in registration.replicas if replica != self.around.broker_id]
        self.remote_replicas = {each: self.remote_replicas.get(each) or Replica(each, self.around.brokers) for each in followers}

    def delete(self) -> None:
        """Handle the deletion of the partition."""
        self._clear()
        _tell(self.on_deleted, self.topic_partition)

    def mark_offline(self) -> None:
        """Handle the failure of its log directory."""
        self._clear()
        _tell(self.on_failed, self.topic_partition)

    def tell_following(self) -> None:
        """Tell the listeners that this broker has become a follower in a new epoch."""
        _tell(self.on_following, self.topic_partition)

    def _clear(self) -> None:
        self.disturb()
        self.remote_replicas.clear()
        self.assignment = Assignment()
        self.log = self.future_log = None
        self.isr_state = CommittedIsr()
        self.leader_id = self.leader_epoch_start_offset = None

    # followers --------------------------------------------------------------------------------------------------------------------

    def get_replica(self, replica_id: int) -> Replica | None:
        """Return the state of a follower, or None."""
        return self.remote_replicas.get(replica_id)

    def update_follower_fetch_state(
        self,
        replica: Replica,
        fetched_up_to: LogOffsetMetadata,
        follower_start_offset: int,
        fetch_time_ms: int,
        leader_end_offset: int,
        broker_epoch: int,
    ) -> None:
        """Process a follower's fetch: it may join the ISR, and the high watermark and the low watermark may grow."""
        watches_low_watermark = self.around.delayed.delayed_delete_count > 0
        old_low_watermark = self.low_watermark if watches_low_watermark else -1
        old_end_offset = replica.end.message_offset
        replica.update_fetch_state(fetched_up_to, follower_start_offset, fetch_time_ms, leader_end_offset, broker_epoch)
        increased = watches_low_watermark and self.low_watermark > old_low_watermark
        if replica.broker_id not in self.isr_state.isr:
            self._maybe_expand_isr(replica)
        log = self.log
        if replica.end.message_offset != old_end_offset and log is not None and self.leader_id == self._broker_id:
            increased |= self._maybe_increment_high_watermark(log, fetch_time_ms)
        if increased:
            self.complete_delayed()

    # the in-sync replicas ---------------------------------------------------------------------------------------------------------

    def _maybe_expand_isr(self, replica: Replica) -> None:
        state = self.isr_state
        if (
            isinstance(state, CommittedIsr)
            and replica.broker_id not in state.isr
            and self._is_isr_eligible(replica.broker_id)
            and self._is_in_sync(replica)
        ):
            members = state.isr | {replica.broker_id}
            self._submit(PendingExpandIsr(replica.broker_id, self._proposed(members, state), state))

    def _is_in_sync(self, replica: Replica) -> bool:
        log, start_offset = self.leader_log, self.leader_epoch_start_offset
        end_offset = replica.state.log_end_offset
        return log is not None and end_offset >= log.high_watermark and start_offset is not None and end_offset >= start_offset

    def _is_isr_eligible(self, replica_id: int) -> bool:
        """Whether a broker may be in the ISR: it is neither fenced nor shutting down, and it has fetched with its present epoch."""
        replica = self.remote_replicas.get(replica_id)
        if replica is None:
            return False
        brokers = self.around.brokers
        if brokers.is_fenced(replica_id) or brokers.is_shutting_down(replica_id):
            return False
        fetched_with, known = replica.state.broker_epoch, brokers.alive_broker_epoch(replica_id)
        return fetched_with is not None and known is not None and fetched_with in (-1, known)

    def maybe_shrink_isr(self) -> None:
        """Propose an ISR without replicas that were not caught up for `replica.lag.time.max.ms`. Called every half of that time."""
        state = self.isr_state
        if self.leader_log is None or not isinstance(state, CommittedIsr):
            return
        out_of_sync = self.out_of_sync_replicas()
        if out_of_sync:
            self._submit(PendingShrinkIsr(out_of_sync, self._proposed(state.isr - out_of_sync, state), state))

    def out_of_sync_replicas(self) -> frozenset[int]:
        """The members of the ISR that lag too long, or none while a change is in flight."""
        if self.is_isr_change_in_flight:
            return frozenset()
        now_ms, end_offset, max_lag_ms = self.around.now_ms(), self.local_log.log_end_offset, self.around.replica_lag_time_max_ms

        def is_out_of_sync(replica_id: int) -> bool:
            replica = self.remote_replicas.get(replica_id)
            return replica is None or not replica.state.is_caught_up(end_offset, now_ms, max_lag_ms)

        return frozenset(each for each in self.isr_state.isr if each != self.around.broker_id and is_out_of_sync(each))

    def _proposed(self, members: frozenset[int], state: CommittedIsr) -> ProposedIsr:
        isr = tuple(BrokerState(member, self._broker_epoch_of(member)) for member in sorted(members))
        return ProposedIsr(self.around.broker_id, self.leader_epoch, isr, state.leader_recovery_state, self.partition_epoch)

    def _broker_epoch_of(self, broker_id: int) -> int:
        if broker_id == self.around.broker_id:
            return self.around.broker_epoch()
        replica = self.remote_replicas.get(broker_id)
        # A member that has not fetched from this leader yet. If it crashes, the controller removes it from the ISR, and the partition epoch
        # of this proposal is out of date.
        return UNKNOWN_BROKER_EPOCH if replica is None or replica.state.broker_epoch is None else replica.state.broker_epoch

    def _submit(self, pending: PendingChange) -> None:
        self.isr_state = pending

        def on_answer(answer: LeaderAndIsr | str) -> None:
            if self.isr_state is not pending:
                return
            if isinstance(answer, str):
                self._on_isr_refused(pending, answer)
                return
            try:
                has_grown = self._on_isr_changed(pending, answer)
            except KopsError:
                return  # The disk fails. Its directory is offline now, and the change of the ISR is stored.
            if has_grown:
                self.complete_delayed()

        self.around.alter_partition.submit(self.topic_id, self.topic_partition.partition, pending.sent, on_answer)

    def _on_isr_refused(self, pending: PendingChange, error: str) -> None:
        self.failed_isr_updates += 1
        if error in REJECTED:
            self.isr_state = pending.last_committed
        elif error not in SUPERSEDED:
            self._submit(pending)

    def _on_isr_changed(self, pending: PendingChange, answer: LeaderAndIsr) -> bool:
        """Apply the controller's answer, and return whether the high watermark grew. The epoch is unchanged if the controller changed
        nothing.
        """
        if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
            self.failed_isr_updates += 1
            return False
        self.disturb()
        self.isr_state = CommittedIsr(frozenset(answer.isr), answer.leader_recovery_state)
        self.partition_epoch = answer.partition_epoch
        if isinstance(pending, PendingExpandIsr):
            self.isr_expands += 1
        else:
            self.isr_shrinks += 1
        log = self.leader_log
        return log is not None and self._maybe_increment_high_watermark(log, self.around.now_ms())

    # high and low watermark -------------------------------------------------------------------------------------------------------

    def _maybe_increment_high_watermark(self, log: ReplicaLog, now_ms: int) -> bool:
        """Move the high watermark to the lowest end of the replicas that count, and return whether it grew.

        These are the members of the maximal ISR and the replicas that are caught up and may join. If only the ISR counted, a growing high
        watermark could keep such a follower out of the ISR forever. Below `min.insync.replicas`, the high watermark does not move
        (KIP-966).
        """
        isr_state = self.isr_state
        in_sync = len(isr_state.isr)
        if in_sync < log.config.min_insync_replicas and in_sync < self._effective_min_isr(log):
            return False
        end = lowest = log.log_end_offset_metadata
        maximal_isr = isr_state.maximal_isr
        for replica in self.remote_replicas.values():
            if replica.end.message_offset < lowest.message_offset and (
                replica.broker_id in maximal_isr
                or (
                    replica.state.is_caught_up(end.message_offset, now_ms, self.around.replica_lag_time_max_ms)
                    and self._is_isr_eligible(replica.broker_id)
                )
            ):
                lowest = replica.end
        if log.maybe_increment_high_watermark(lowest) is None:
            return False
        if self.resting:
            self.disturb()
        return True

    def check_enough_replicas_reach_offset(self, required_offset: int) -> tuple[bool, str]:
        """Return whether everything below `required_offset` is replicated, and the name of an error: the condition of acks=all."""
        log = self.log
        if log is None or self.leader_id != self._broker_id:
            return False, "NOT_LEADER_OR_FOLLOWER"
        if log.high_watermark < required_offset:
            return False, "NONE"
        size = len(self.isr_state.maximal_isr)
        enough = size >= log.config.min_insync_replicas or size >= self._effective_min_isr(log)
        return True, "NONE" if enough else "NOT_ENOUGH_REPLICAS_AFTER_APPEND"

    @property
    def low_watermark(self) -> int:
        """The lowest start offset of the live replicas (and of the copy in another directory). Raises ApiError NOT_LEADER_OR_FOLLOWER."""
        if not self.is_leader:
            raise self._not_leader()
        lowest = self.local_log.log_start_offset
        for replica in self.remote_replicas.values():
            if self.around.brokers.alive_broker_epoch(replica.broker_id) is not None:
                lowest = min(lowest, replica.state.log_start_offset)
        return lowest if self.future_log is None else min(lowest, self.future_log.log_start_offset)

    def complete_delayed(self) -> None:
        """Check the operations that wait for this partition."""
        self.around.delayed.check_and_complete_all(self.topic_partition)

    # appending and cutting --------------------------------------------------------------------------------------------------------

    def append_records_to_leader(
        self,
        records: Buffer,
        required_acks: int,
        *,
        origin: AppendOrigin = AppendOrigin.CLIENT,
        verification_guard: Any = None,
        transaction_version: int = TRANSACTION_VERSION_UNKNOWN,
    ) -> LeaderAppend:
        """Append the records of a client or a coordinator. `verification_guard` is that of the log for a transaction's first append.

        Raises ApiError NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks -1), and the log's errors.
        """
        log = self.leader_log
        if log is None:
            raise self._not_leader()
        if required_acks == -1 and len(self.isr_state.isr) < self._effective_min_isr(log):
            in_sync, min_isr = len(self.isr_state.isr), self._effective_min_isr(log)
            reason = (
                f"The size of the current ISR : {in_sync} is insufficient to satisfy the min.isr requirement of {min_isr} for partition "
                f"{self.topic_partition.topic}-{self.topic_partition.partition}, live replica(s) broker.id are : "
                f"Set({', '.join(map(str, self.isr_state.isr))})"
            )
            raise ApiError("NOT_ENOUGH_REPLICAS", reason)
        if self.resting:
            self.disturb()
        info = log.append_as_leader(
            records, self.leader_epoch, origin=origin, verification_guard=verification_guard, transaction_version=transaction_version
        )
        return LeaderAppend(info, self._maybe_increment_high_watermark(log, self.around.now_ms()))

    def append_records_to_follower(self, records: Buffer, leader_epoch: int, *, is_future: bool = False) -> AppendInfo | None:
        """Append fetched records. Returns None if the copy into another directory is gone. Raises the log's errors."""
        log = self.future_log if is_future else self.local_log
        if log is None:
            return None
        if records and self.resting:
            self.disturb()
        try:
            return log.append_as_follower(records, leader_epoch)
        except UnexpectedAppendOffsetError as error:
            end_offset = log.log_end_offset
            if end_offset != log.log_start_offset or not error.first_offset < end_offset <= error.last_offset:
                raise
            first_offset = error.first_offset
        # The leader's log begins within a batch (DeleteRecords). This log is empty, so it begins with that batch.
        self.truncate_fully_and_start_at(first_offset, is_future=is_future)
        return log.append_as_follower(records, leader_epoch)

    def truncate_to(self, offset: int, *, is_future: bool = False) -> None:
        """Truncate the log."""
        self.disturb()
        self.around.logs.truncate_to({self.topic_partition: offset}, is_future=is_future)

    def truncate_fully_and_start_at(self, offset: int, *, is_future: bool = False, log_start_offset: int | None = None) -> None:
        """Empty the log, which then continues at `offset`."""
        self.disturb()
        self.around.logs.truncate_fully_and_start_at(self.topic_partition, offset, is_future=is_future, log_start_offset=log_start_offset)

    def delete_records(self, offset: int) -> DeletedRecords:
        """Move the log's start to `offset` (-1: high watermark). Raises ApiError OFFSET_OUT_OF_RANGE, POLICY_VIOLATION,
        NOT_LEADER_OR_FOLLOWER.
        """
        log = self.leader_log
        if log is None:
            raise self._not_leader()
        if not log.config.delete and log.config.compact:
            name = f"{self.topic_partition.topic}-{self.topic_partition.partition}"
            raise ApiError("POLICY_VIOLATION", f"Records of partition {name} can not be deleted due to the configured policy")
        wanted = log.high_watermark if offset == HIGH_WATERMARK else offset
        if wanted < 0:
            name = f"{self.topic_partition.topic}-{self.topic_partition.partition}"
            raise ApiError("OFFSET_OUT_OF_RANGE", f"The offset {wanted} for partition {name} is not valid")
        log.maybe_increment_log_start_offset(wanted, "client delete records request")
        return DeletedRecords(wanted, self.low_watermark)

    # a move into another log directory --------------------------------------------------------------------------------------------

    def maybe_create_future_log(self, log_dir: str, open_log: Callable[[], ReplicaLog]) -> bool:
        """Start a copy into `log_dir`, unless the log is there already. Returns whether the copy is new."""
        if self.local_log.parent_dir == log_dir:
            return False
        if self.future_log is not None:
            other = self.future_log.parent_dir
            assert other == log_dir, f"{self.topic_partition} is already being copied to {other}, not to {log_dir}"
            return False
        self.future_log = open_log()
        return True

    @property
    def is_future_log_caught_up(self) -> bool:
        """Whether the copy has reached the log's end."""
        return self.future_log is not None and self.future_log.log_end_offset == self.local_log.log_end_offset

    def maybe_replace_current_with_future_log(self) -> bool:
        """Replace the log with its copy if the copy is complete, and return whether it was replaced."""
        copy = self.future_log
        if copy is None or not self.is_future_log_caught_up:
            return False
        if self.is_leader and self.leader_epoch_start_offset is not None and copy.latest_epoch != self.leader_epoch:
            # A copy knows only epochs that have records. Kafka leaves it at that, and then refuses the fetches of followers with an
            # earlier epoch, which may wait outside the ISR until the next record comes.
            copy.epochs.assign(self.leader_epoch, self.leader_epoch_start_offset)
        self.around.logs.replace_current_with_future_log(self.topic_partition)
        self.disturb()
        self.log, self.future_log = self.future_log, None
        self.local_log.on_log_start = self._on_log_start
        if self._high_watermark_listeners:
            self.local_log.on_high_watermark = self._tell_high_watermark
        return True


def _tell(listeners: list[Callable[[TopicPartition], None]], key: TopicPartition) -> None:
    """Call listeners, which may remove themselves."""
    for listener in tuple(listeners):
        listener(key)
