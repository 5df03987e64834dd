"""Groups as an admin client describes them.

Source: Kafka's GroupListing, GroupState, GroupType, ConsumerGroupDescription, MemberDescription, ClassicGroupDescription,
ShareGroupDescription, StreamsGroupDescription and the classes of their members.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple, Self

if TYPE_CHECKING:
    from kops.client.admin.core.values import AclOperation
    from kops.client.node import Node
    from kops.records.log_offsets import TopicPartition


class _Word(StrEnum):
    @classmethod
    def _missing_(cls, value: object) -> Self:
        found = next((one for one in cls if one.lower() == str(value).lower()), None)
        return cls("Unknown") if found is None else found


class GroupType(_Word):
    """The kind of a group."""

    UNKNOWN = "Unknown"
    CONSUMER = "Consumer"
    CLASSIC = "Classic"
    SHARE = "Share"
    STREAMS = "Streams"


class GroupState(_Word):
    """The state of a group. Which states there are depends on its kind."""

    UNKNOWN = "Unknown"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"
    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    NOT_READY = "NotReady"


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group in a list. Type and state are None if the broker is too old to report them."""

    group_id: str
    type: GroupType | None
    protocol: str
    group_state: GroupState | None

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it only keeps offsets: no member has ever joined."""
        return self.type is GroupType.CLASSIC and not self.protocol


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """A member of a consumer group or of a classic group. Classic members have no epoch and no target; `upgraded` tells whether a member
    of a consumer group uses the protocol of KIP-848."""

    member_id: str
    group_instance_id: str | None
    rack_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    target_assignment: frozenset[TopicPartition] | None = None
    member_epoch: int | None = None
    upgraded: bool | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupDescription:
    """A group of consumers, of either protocol. Classic groups have no epochs."""

    group_id: str
    is_simple_consumer_group: bool
    members: tuple[MemberDescription, ...]
    partition_assignor: str
    type: GroupType
    group_state: GroupState
    coordinator: Node
    authorized_operations: frozenset[AclOperation] | None
    group_epoch: int | None = None
    target_assignment_epoch: int | None = None


@dataclass(frozen=True, slots=True)
class ClassicGroupDescription:
    """A classic group, also one that is not of consumers."""

    group_id: str
    protocol: str
    protocol_data: str
    members: tuple[MemberDescription, ...]
    state: GroupState
    coordinator: Node
    authorized_operations: frozenset[AclOperation] | None

    @property
    def is_simple_consumer_group(self) -> bool:
        """Whether it only keeps offsets: no member has ever joined."""
        return not self.protocol


@dataclass(frozen=True, slots=True)
class ShareMemberDescription:
    """A member of a share group."""

    member_id: str
    rack_id: str | None
    client_id: str
    host: str
    assignment: frozenset[TopicPartition]
    member_epoch: int


@dataclass(frozen=True, slots=True)
class ShareGroupDescription:
    """A share group."""

    group_id: str
    members: tuple[ShareMemberDescription, ...]
    group_state: GroupState
    coordinator: Node
    group_epoch: int
    target_assignment_epoch: int
    authorized_operations: frozenset[AclOperation] | None


class TaskIds(NamedTuple):
    """Tasks of a subtopology, by partition."""

    subtopology_id: str
    partitions: tuple[int, ...]


class TaskOffset(NamedTuple):
    """How far a task is."""

    subtopology_id: str
    partition: int
    offset: int


class Endpoint(NamedTuple):
    """Where a member answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class StreamsGroupMemberAssignment:
    """The tasks of a member."""

    active_tasks: tuple[TaskIds, ...]
    standby_tasks: tuple[TaskIds, ...]
    warmup_tasks: tuple[TaskIds, ...]


@dataclass(frozen=True, slots=True)
class StreamsGroupMemberDescription:
    """A member of a streams group."""

    member_id: str
    member_epoch: int
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    topology_epoch: int
    process_id: str
    user_endpoint: Endpoint | None
    client_tags: dict[str, str]
    task_offsets: tuple[TaskOffset, ...]
    task_end_offsets: tuple[TaskOffset, ...]
    assignment: StreamsGroupMemberAssignment
    target_assignment: StreamsGroupMemberAssignment
    is_classic: bool


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic that a topology needs. Zero stands for a number that the broker chooses."""

    partitions: int
    replication_factor: int
    topic_configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class StreamsGroupSubtopologyDescription:
    """A part of a topology whose tasks are independent of others."""

    subtopology_id: str
    source_topics: tuple[str, ...]
    repartition_sink_topics: tuple[str, ...]
    state_changelog_topics: dict[str, TopicInfo]
    repartition_source_topics: dict[str, TopicInfo]


@dataclass(frozen=True, slots=True)
class StreamsGroupDescription:
    """A streams group."""

    group_id: str
    group_epoch: int
    target_assignment_epoch: int
    topology_epoch: int
    subtopologies: tuple[StreamsGroupSubtopologyDescription, ...]
    members: tuple[StreamsGroupMemberDescription, ...]
    group_state: GroupState
    coordinator: Node
    authorized_operations: frozenset[AclOperation] | None
