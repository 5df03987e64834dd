"""A classic group: its members, its state and their protocols (Kafka's ClassicGroup).

Its state is only in memory and changes before records are written. If a write fails, the writer undoes the change, not the timeline.
Members are in the order of Java's HashMap, which decides which member becomes leader and the order of members in records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kops.config.values.java_hash import put_order
from kops.coordinators.groups.classic.member import ClassicGroupMember
from kops.coordinators.groups.classic.state import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    VALID_PREVIOUS_STATES,
    ClassicGroupState,
)
from kops.coordinators.groups.group import CommitPartitionValidator, Group, GroupType, any_partition
from kops.coordinators.groups.offset_and_metadata import BaseTimestamp, commit_timestamp
from kops.coordinators.groups.records.classic import group_metadata_tombstone
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError, DecodeError
from kops.protocol.errors import by_name
from kops.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from kops.protocol.messages.sync_group_response import SyncGroupResponse

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_FIRST_BINS: Final = 16


def broken(text: str) -> ApiError:
    """Return the error for a state in which Kafka throws IllegalStateException: clients get UNKNOWN_SERVER_ERROR."""
    return ApiError("UNKNOWN_SERVER_ERROR", text)


class ClassicGroup(Group):
    """The group. Without members and protocol type it is a simple group, which only stores offsets."""

    def __init__(
        self,
        group_id: str,
        now_ms: Callable[[], int],
        state: ClassicGroupState = EMPTY,
        *,
        generation_id: int = 0,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
        leader_id: str | None = None,
        current_state_timestamp: int | None = None,
    ) -> None:
        self.group_id = group_id
        self.now_ms = now_ms
        self.state = state
        self.previous_state = DEAD
        self.generation_id = generation_id
        self.protocol_type = protocol_type
        self.protocol_name = protocol_name
        self.leader_id = leader_id
        self.current_state_timestamp = current_state_timestamp
        self.members: dict[str, ClassicGroupMember] = {}
        self.static_members: dict[str, str] = {}
        self.pending_join_members: set[str] = set()
        self.pending_sync_members: set[str] = set()
        self.awaiting_join_count = 0
        self.supported_protocols: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        self.new_member_added = False
        self._bins = _FIRST_BINS
        self._ordered: list[ClassicGroupMember] | None = None

    @property
    def type(self) -> GroupType:
        return GroupType.CLASSIC

    @property
    def state_text(self) -> str:
        return self.state.value

    @property
    def committed_state_text(self) -> str:
        return self.state.value

    @property
    def protocol_type_text(self) -> str:
        return self.protocol_type or ""

    @property
    def is_empty(self) -> bool:
        return self.state is EMPTY

    @property
    def member_count(self) -> int:
        return len(self.members)

    @property
    def is_simple(self) -> bool:
        """Whether the group only stores offsets."""
        return self.protocol_type is None and self.is_empty and not self.pending_join_members

    @property
    def uses_consumer_protocol(self) -> bool:
        """Whether its members are consumers, whose metadata names topics."""
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def has_member(self, member_id: str) -> bool:
        return member_id in self.members

    def all_members(self) -> list[ClassicGroupMember]:
        """The members in the order of a HashMap: by bin, and within a bin in order of insertion."""
        if self._ordered is None:
            mask = self._bins - 1
            self._ordered = sorted(self.members.values(), key=lambda member: member.java_hash & mask)
        return self._ordered

    def is_leader(self, member_id: str) -> bool:
        """Whether the member leads the group."""
        return self.leader_id is not None and self.leader_id == member_id

    def is_pending_member(self, member_id: str) -> bool:
        """Whether the member has received an id but has not joined with it yet."""
        return member_id in self.pending_join_members

    def add(self, member: ClassicGroupMember, promise: Promise[JoinGroupResponse] | None = None) -> None:
        """Add a member, which waits for the response `promise`."""
        instance_id = member.group_instance_id
        if instance_id is not None:
            if instance_id in self.static_members:
                known = f"groupInstanceId={instance_id} cannot be added to group {self.group_id} since it is already a member."
                raise broken(f"Static member with {known}")
            self.static_members[instance_id] = member.member_id
        if not self.members:
            self.protocol_type = member.protocol_type
        if self.protocol_type != member.protocol_type:
            raise broken("The group and member's protocol type must be the same.")
        if not self.supports_protocols(member.protocol_type, member.supported_protocols):
            raise broken("None of the member's protocols can be supported.")
        if self.leader_id is None:
            self.leader_id = member.member_id
        self._put(member)
        self._count_protocols(member, 1)
        member.awaiting_join = promise
        if member.is_awaiting_join:
            self.awaiting_join_count += 1
        self.pending_join_members.discard(member.member_id)

    def remove(self, member_id: str) -> None:
        """Remove a member, if it exists. If it was the leader, the first remaining member becomes leader."""
        member = self.members.pop(member_id, None)
        self._ordered = None
        if member is not None:
            self._count_protocols(member, -1)
            if member.is_awaiting_join:
                self.awaiting_join_count -= 1
            if member.group_instance_id is not None:
                self.static_members.pop(member.group_instance_id, None)
        if self.is_leader(member_id):
            left = self.all_members()
            self.leader_id = left[0].member_id if left else None
        self.pending_join_members.discard(member_id)
        self.pending_sync_members.discard(member_id)

    def maybe_elect_new_joined_leader(self) -> bool:
        """Whether the leader has joined. If it has not, elect a joined member in its place."""
        if self.leader_id is None:
            return False
        if self.members[self.leader_id].is_awaiting_join:
            return True
        for member in self.all_members():
            if member.is_awaiting_join:
                self.leader_id = member.member_id
                return True
        return False

    def replace_static_member(self, group_instance_id: str, old_member_id: str, new_member_id: str) -> ClassicGroupMember:
        """Give a static member a new id, and fence the client that uses the old one."""
        removed = self.members.pop(old_member_id, None)
        self._ordered = None
        if removed is None:
            raise broken(f"Cannot replace non-existing member id {old_member_id}")
        fenced = by_name("FENCED_INSTANCE_ID").code
        self.complete_join(removed, JoinGroupResponse(member_id=old_member_id, protocol_name=None, error_code=fenced))
        self.complete_sync(removed, SyncGroupResponse(error_code=fenced))
        member = ClassicGroupMember(
            new_member_id,
            removed.group_instance_id,
            removed.client_id,
            removed.client_host,
            removed.rebalance_timeout_ms,
            removed.session_timeout_ms,
            removed.protocol_type,
            removed.supported_protocols,
            removed.assignment,
        )
        self._put(member)
        if self.is_leader(old_member_id):
            self.leader_id = new_member_id
        self.static_members[group_instance_id] = new_member_id
        return member

    def add_pending_member(self, member_id: str) -> None:
        """Add the id of a new member, which must join again with it (KIP-394)."""
        if member_id in self.members:
            raise broken(f"Attempt to add pending member {member_id} which is already a stable member of the group.")
        self.pending_join_members.add(member_id)

    def add_pending_sync_member(self, member_id: str) -> None:
        """Record that a member has joined and must still sync."""
        self.pending_sync_members.add(member_id)

    def remove_pending_sync_member(self, member_id: str) -> None:
        """Record that a member has synced."""
        self.pending_sync_members.discard(member_id)

    @property
    def has_received_sync_from_all_members(self) -> bool:
        """Whether all members have synced."""
        return not self.pending_sync_members

    @property
    def has_all_members_joined(self) -> bool:
        """Whether all members have joined, and no pending member is missing."""
        return len(self.members) == self.awaiting_join_count and not self.pending_join_members

    @property
    def rebalance_timeout_ms(self) -> int:
        """Return the longest of the members' rebalance timeouts."""
        return max(0, *(member.rebalance_timeout_ms for member in self.members.values())) if self.members else 0

    def validate_member(self, member_id: str, group_instance_id: str | None) -> None:
        """Raise ApiError if there is no such member, or if a static member now has another id."""
        if group_instance_id is not None:
            existing = self.static_members.get(group_instance_id)
            if existing is None:
                raise ApiError("UNKNOWN_MEMBER_ID")
            if existing != member_id:
                raise ApiError("FENCED_INSTANCE_ID")
        if member_id not in self.members:
            raise ApiError("UNKNOWN_MEMBER_ID")

    def validate_offset_commit(
        self, member_id: str, group_instance_id: str | None, generation_id_or_member_epoch: int, is_transactional: bool, api_version: int
    ) -> CommitPartitionValidator:
        if self.state is DEAD:
            raise ApiError("COORDINATOR_NOT_AVAILABLE")
        if generation_id_or_member_epoch < 0 and self.state is EMPTY:
            return any_partition
        if generation_id_or_member_epoch >= 0 or member_id or group_instance_id is not None:
            self.validate_member(member_id, group_instance_id)
            if generation_id_or_member_epoch != self.generation_id:
                raise ApiError("ILLEGAL_GENERATION")
        elif not is_transactional and self.state is not EMPTY:
            # Producers without KIP-447 send transactional commits without a member.
            raise ApiError("UNKNOWN_MEMBER_ID")
        if not is_transactional and self.state is COMPLETING_REBALANCE:
            raise ApiError("REBALANCE_IN_PROGRESS")
        return any_partition

    def validate_offset_fetch(self, member_id: str | None, member_epoch: int, *, require_stable: bool) -> None:
        if self.state is DEAD:
            raise self._dead()

    def validate_offset_delete(self) -> None:
        if self.state is DEAD:
            raise self._dead()
        if self.state is not EMPTY and not self.uses_consumer_protocol:
            raise ApiError("NON_EMPTY_GROUP")

    def validate_delete_group(self) -> None:
        if self.state is DEAD:
            raise self._dead()
        if self.state is not EMPTY:
            raise ApiError("NON_EMPTY_GROUP")

    def _dead(self) -> ApiError:
        return ApiError("GROUP_ID_NOT_FOUND", f"Group {self.group_id} is in dead state.")

    def create_group_tombstone_records(self, records: list[CoordinatorRecord]) -> None:
        records.append(group_metadata_tombstone(self.group_id))

    def offset_expiration_condition(self) -> BaseTimestamp | None:
        if self.protocol_type is None:
            return commit_timestamp
        if self.state is EMPTY:
            since = self.current_state_timestamp
            return commit_timestamp if since is None else lambda _offset: since
        if self.uses_consumer_protocol and self.subscribed_topics is not None and self.state is STABLE:
            return commit_timestamp
        return None

    @property
    def can_rebalance(self) -> bool:
        """Whether a rebalance may begin."""
        return self.state in VALID_PREVIOUS_STATES[PREPARING_REBALANCE]

    def transition_to(self, state: ClassicGroupState) -> None:
        """Change the state."""
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise broken(f"Group {self.group_id} can't go from the state {self.state.value} to {state.value}.")
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp = self.now_ms()

    def select_protocol(self) -> str:
        """Return the protocol that all members support and that most of them prefer."""
        if not self.members:
            raise broken("Cannot select protocol for empty group")
        candidates = {name for name, count in self.supported_protocols.items() if count == len(self.members)}
        votes: dict[str, int] = {}
        for member in self.all_members():
            name = member.vote(candidates)
            votes[name] = votes.get(name, 0) + 1
        return max(put_order(votes), key=votes.__getitem__)

    def supports_protocols(self, protocol_type: str, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether a member with this type and these protocols may join. An empty group accepts any protocol; others require one that all
        members support."""
        if self.state is EMPTY:
            return bool(protocol_type) and bool(protocols)
        count = len(self.members)
        return self.protocol_type == protocol_type and any(
            self.supported_protocols.get(protocol.name, 0) == count for protocol in protocols
        )

    def is_subscribed_to_topic(self, topic: str) -> bool:
        """Whether a member subscribes to the topic. If the topics of consumers are unknown, the answer is True."""
        return self.uses_consumer_protocol if self.subscribed_topics is None else topic in self.subscribed_topics

    def compute_subscribed_topics(self) -> frozenset[str] | None:
        """Return the topics in the members' metadata, or None if it is not that of consumers or cannot be read.

        In Kafka, negative or too large lengths are an error after which the group never completes its rebalance.
        """
        if not self.uses_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        if self.protocol_name is None:
            return None
        topics: set[str] = set()
        for member in self.members.values():
            metadata = member.metadata(self.protocol_name)
            try:
                if len(metadata) < 2:
                    return None
                topics.update(ConsumerProtocolSubscription.read(metadata, 0, 2)[0].topics)
            except DecodeError:
                return None
        return frozenset(topics)

    def update_member(
        self,
        member: ClassicGroupMember,
        protocols: Sequence[JoinGroupRequestProtocol],
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        promise: Promise[JoinGroupResponse] | None,
    ) -> None:
        """Update a member that has joined again and waits for the response `promise`."""
        self._count_protocols(member, -1)
        member.supported_protocols = protocols
        self._count_protocols(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms
        if promise is not None and not member.is_awaiting_join:
            self.awaiting_join_count += 1
        elif promise is None and member.is_awaiting_join:
            self.awaiting_join_count -= 1
        member.awaiting_join = promise

    def complete_join(self, member: ClassicGroupMember, response: JoinGroupResponse) -> bool:
        """Answer a member that waits for a JoinGroup response. Returns False if it does not wait."""
        promise = member.awaiting_join
        if promise is None:
            return False
        promise.complete(response)
        member.awaiting_join = None
        self.awaiting_join_count -= 1
        return True

    def complete_sync(self, member: ClassicGroupMember, response: SyncGroupResponse) -> bool:
        """Answer a member that waits for a SyncGroup response. Returns False if it does not wait."""
        promise = member.awaiting_sync
        if promise is None:
            return False
        promise.complete(response)
        member.awaiting_sync = None
        return True

    def init_next_generation(self) -> None:
        """Begin the next generation, with a newly selected protocol, after all members have joined."""
        self.generation_id += 1
        self.protocol_name = self.select_protocol() if self.members else None
        self.subscribed_topics = self.compute_subscribed_topics()
        self.transition_to(COMPLETING_REBALANCE if self.members else EMPTY)
        self.pending_sync_members.clear()

    def members_for_leader(self) -> list[JoinGroupResponseMember]:
        """Return all members and their metadata, for the leader's JoinGroup response."""
        if self.state in (DEAD, PREPARING_REBALANCE):
            raise broken(f"Cannot obtain classic member metadata for group {self.group_id} in state {self.state.name}")
        name = self.protocol_name
        return [
            JoinGroupResponseMember(member_id=member.member_id, group_instance_id=member.group_instance_id, metadata=member.metadata(name))
            for member in self.all_members()
        ]

    def assignment(self) -> dict[str, bytes]:
        """Return the members' assignments."""
        return {member.member_id: member.assignment for member in self.members.values()}

    def _put(self, member: ClassicGroupMember) -> None:
        self.members[member.member_id] = member
        self._ordered = None
        if len(self.members) > self._bins * 3 // 4:
            self._bins *= 2

    def _count_protocols(self, member: ClassicGroupMember, change: int) -> None:
        for protocol in member.supported_protocols:
            self.supported_protocols[protocol.name] = self.supported_protocols.get(protocol.name, 0) + change
