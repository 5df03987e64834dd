"""A member of a classic group (Kafka's ClassicGroupMember)."""

from __future__ import annotations

from collections.abc import Sequence, Set

from kops.config.values.java_hash import string_hash
from kops.coordinators.runtime.promise import Promise
from kops.errors import ApiError
from kops.protocol.messages.describe_groups_response import DescribedGroupMember
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.sync_group_response import SyncGroupResponse

EMPTY_ASSIGNMENT = b""


class ClassicGroupMember:
    """A member. `awaiting_join` and `awaiting_sync` are its pending responses."""

    __slots__ = (
        "assignment",
        "awaiting_join",
        "awaiting_sync",
        "client_host",
        "client_id",
        "group_instance_id",
        "is_new",
        "java_hash",
        "member_id",
        "protocol_type",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "supported_protocols",
    )

    def __init__(
        self,
        member_id: str,
        group_instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocol_type: str,
        supported_protocols: Sequence[JoinGroupRequestProtocol],
        assignment: bytes = EMPTY_ASSIGNMENT,
    ) -> None:
        self.member_id = member_id
        self.group_instance_id = group_instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocol_type = protocol_type
        self.supported_protocols = supported_protocols
        self.assignment = assignment
        self.awaiting_join: Promise[JoinGroupResponse] | None = None
        self.awaiting_sync: Promise[SyncGroupResponse] | None = None
        self.is_new = False
        code = string_hash(member_id)
        self.java_hash = code ^ code >> 16
        """The hash of the id in a HashMap, for the order of members."""

    @property
    def is_static(self) -> bool:
        """Whether the member has an instance id (KIP-345)."""
        return self.group_instance_id is not None

    @property
    def is_awaiting_join(self) -> bool:
        """Whether the member waits for a JoinGroup response."""
        return self.awaiting_join is not None

    @property
    def is_awaiting_sync(self) -> bool:
        """Whether the member waits for a SyncGroup response."""
        return self.awaiting_sync is not None

    @property
    def has_satisfied_heartbeat(self) -> bool:
        """Whether the member stays after its session time-out, because it waits for a response and cannot send heartbeats. New members do
        not."""
        return not self.is_new and (self.is_awaiting_join or self.is_awaiting_sync)

    def metadata(self, protocol_name: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        for protocol in self.supported_protocols:
            if protocol.name == protocol_name:
                return protocol.metadata
        raise ApiError("UNKNOWN_SERVER_ERROR", f"Member does not support protocol {protocol_name}")

    def matches(self, protocols: Sequence[JoinGroupRequestProtocol]) -> bool:
        """Whether the member has the same protocols, in the same order, with the same metadata."""
        return [(own.name, own.metadata) for own in self.supported_protocols] == [(other.name, other.metadata) for other in protocols]

    def vote(self, candidates: Set[str]) -> str:
        """Return the first of the member's protocols that is a candidate."""
        for protocol in self.supported_protocols:
            if protocol.name in candidates:
                return protocol.name
        raise ApiError("UNKNOWN_SERVER_ERROR", "Member does not support any of the candidate protocols")

    def describe(self, protocol_name: str | None = None) -> DescribedGroupMember:
        """Return the member for a description of its group, with its metadata if the group has a protocol."""
        return DescribedGroupMember(
            member_id=self.member_id,
            group_instance_id=self.group_instance_id,
            client_id=self.client_id,
            client_host=self.client_host,
            member_metadata=b"" if protocol_name is None else self.metadata(protocol_name),
            member_assignment=self.assignment,
        )
