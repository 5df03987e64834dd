"""A member's next step towards its target assignment (Kafka's streams CurrentAssignmentBuilder).

A member first revokes tasks that it must not keep (UNREVOKED_TASKS). Then it gets tasks that others have released (UNRELEASED_TASKS while
some have not). It is STABLE when it has its whole target assignment. A process never has the same task twice, in any role.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Set
from dataclasses import dataclass

from kops.coordinators.groups.assignors.java_maps import JavaSet, copy_capacity, put_ordered, text_hash
from kops.coordinators.groups.streams.assignors.spec import TargetTasks, TaskNumbers
from kops.coordinators.groups.streams.state.member import MemberState, StreamsGroupMember
from kops.coordinators.groups.streams.state.tasks import ActiveTasks, OwnedTasks, has_any
from kops.errors import ApiError

IsTaken = Callable[[str, int], bool]
"""Returns whether another process owns a task, so that the member cannot get it yet."""


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The input of the next step: the target, the current owners of tasks, and the tasks that the member reports (None if it reports
    none)."""

    target_epoch: int
    target: TargetTasks
    active_process: Callable[[str, int], str | None]
    standby_processes: Callable[[str, int], Set[str]]
    warmup_processes: Callable[[str, int], Set[str]]
    owned: TargetTasks | None

    def next_member(self, member: StreamsGroupMember) -> StreamsGroupMember:
        """Return the member after this step. Raises ApiError FENCED_MEMBER_EPOCH."""
        match member.state:
            case MemberState.STABLE:
                if member.member_epoch == self.target_epoch:
                    return member
                return self._compute_next(member, member.member_epoch)
            case MemberState.UNREVOKED_TASKS:
                if self.owned is None or has_any(self.owned, member.tasks_pending_revocation):
                    return member
                return self._compute_next(member, member.member_epoch + 1)
            case MemberState.UNRELEASED_TASKS:
                return self._compute_next(member, member.member_epoch)
            case MemberState.UNKNOWN:
                if self.owned is None or any(self.owned):
                    raise ApiError(
                        "FENCED_MEMBER_EPOCH",
                        "The streams group member is in a unknown state. The member must abandon all its tasks and rejoin.",
                    )
                return self._compute_next(member, self.target_epoch)
            case _:
                raise ApiError("UNKNOWN_SERVER_ERROR", f"The state of member {member.member_id} is not known.")

    def _compute_next(self, member: StreamsGroupMember, member_epoch: int) -> StreamsGroupMember:
        own = member.process_id

        def has_copy(subtopology_id: str, number: int) -> bool:
            return own in self.standby_processes(subtopology_id, number) or own in self.warmup_processes(subtopology_id, number)

        def is_active_taken(subtopology_id: str, number: int) -> bool:
            return self.active_process(subtopology_id, number) is not None or has_copy(subtopology_id, number)

        def is_copy_taken(subtopology_id: str, number: int) -> bool:
            return self.active_process(subtopology_id, number) == own or has_copy(subtopology_id, number)

        has, target = member.assigned_tasks, self.target
        active = _Change(has.active, target.active, is_active_taken)
        standby = _Change(has.standby, target.standby, is_copy_taken)
        warmup = _Change(has.warmup, target.warmup, is_copy_taken)
        has_unreleased = active.has_unreleased or standby.has_unreleased or warmup.has_unreleased
        kept = OwnedTasks(_with_epochs(active.kept, has.active), standby.kept, warmup.kept)
        revoked = OwnedTasks(_with_epochs(active.revoked, has.active), standby.revoked, warmup.revoked)
        if not revoked.is_empty and (self.owned is None or has_any(self.owned, revoked)):
            return member.at_epoch(member_epoch, MemberState.UNREVOKED_TASKS, kept, revoked)
        epochs = {subtopology_id: dict.fromkeys(numbers, self.target_epoch) for subtopology_id, numbers in active.free.items()}
        new = OwnedTasks(epochs, standby.free, warmup.free)
        state = MemberState.UNRELEASED_TASKS if has_unreleased else MemberState.STABLE
        return member.at_epoch(self.target_epoch, state, kept if new.is_empty else kept.merged_with(new))


class _Change:
    """For one kind of task: the tasks that a member keeps, must revoke and can get, and whether it must wait for other members."""

    def __init__(self, current: Mapping[str, Collection[int]], target: TaskNumbers, is_taken: IsTaken) -> None:
        kept: dict[str, frozenset[int]] = {}
        revoked: dict[str, frozenset[int]] = {}
        can_get: dict[str, frozenset[int]] = {}
        self.has_unreleased = False
        for subtopology_id in JavaSet(text_hash, [*target, *current], capacity=copy_capacity(len(target))):
            own, wanted = frozenset(current.get(subtopology_id, ())), target.get(subtopology_id, frozenset())
            missing = wanted - own
            free = frozenset(number for number in missing if not is_taken(subtopology_id, number))
            self.has_unreleased = self.has_unreleased or len(free) < len(missing)
            for found, numbers in ((kept, own & wanted), (revoked, own - wanted), (can_get, free)):
                if numbers:
                    found[subtopology_id] = numbers
        self.kept, self.revoked, self.free = (put_ordered(found, text_hash) for found in (kept, revoked, can_get))


def _with_epochs(tasks: TaskNumbers, epochs: ActiveTasks) -> ActiveTasks:
    return {
        subtopology_id: {number: epochs[subtopology_id][number] for number in sorted(numbers)} for subtopology_id, numbers in tasks.items()
    }
