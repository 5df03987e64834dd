"""Converts classic groups to consumer groups and back while members stay (the online migration of KIP-848).

Source: Kafka's GroupMetadataManager (convertTo…, validateOnline…), ConsumerGroup.fromClassicGroup, ClassicGroup.fromConsumerGroup.
"""

from __future__ import annotations

from collections.abc import Sequence

from kops.coordinators.groups.assignors.spec import Partitions
from kops.coordinators.groups.classic.errors import code
from kops.coordinators.groups.classic.group import ClassicGroup
from kops.coordinators.groups.classic.member import EMPTY_ASSIGNMENT, ClassicGroupMember
from kops.coordinators.groups.classic.rebalance import Rebalances
from kops.coordinators.groups.classic.state import STABLE
from kops.coordinators.groups.classic.stored import group_record
from kops.coordinators.groups.consumer.lookup import GroupLookup
from kops.coordinators.groups.consumer.state.embedded import (
    SchemaError,
    assignment_bytes,
    partitions_of,
    read_assignment,
    read_subscription,
    version_of,
)
from kops.coordinators.groups.consumer.state.group import CONSUMER_PROTOCOL_TYPE, ConsumerGroup
from kops.coordinators.groups.consumer.state.member import ClassicMetadata, ConsumerGroupMember
from kops.coordinators.groups.consumer.timers import MemberTimers
from kops.coordinators.groups.modern.subscriptions import names_of
from kops.coordinators.runtime.records import CoordinatorRecord
from kops.errors import ApiError
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponse
from kops.protocol.messages.sync_group_response import SyncGroupResponse


class Migration:
    """Converts groups if `group.consumer.migration.policy` and their members allow it."""

    def __init__(self, lookup: GroupLookup, timers: MemberTimers, rebalances: Rebalances) -> None:
        self._lookup = lookup
        self._timers = timers
        self._rebalances = rebalances

    # Upgrade

    def to_consumer_group(self, classic: ClassicGroup, records: list[CoordinatorRecord]) -> ConsumerGroup:
        """Return the consumer group that replaces a classic group, and append its records. Raises ApiError GROUP_ID_NOT_FOUND."""
        self._check_upgrade(classic)
        rebalancing = code("REBALANCE_IN_PROGRESS")
        for member in classic.all_members():
            classic.complete_join(member, JoinGroupResponse(member_id=member.member_id, error_code=rebalancing))
        for member in classic.all_members():
            classic.complete_sync(member, SyncGroupResponse(error_code=rebalancing))
        classic.create_group_tombstone_records(records)
        cannot = f"Cannot upgrade classic group {classic.group_id} to consumer group because"
        try:
            group = self._from_classic_group(classic)
        except SchemaError as error:
            raise ApiError("GROUP_ID_NOT_FOUND", f"{cannot} the embedded consumer protocol is malformed.") from error
        except _CustomAssignor as error:
            raise ApiError(
                "GROUP_ID_NOT_FOUND",
                f"{cannot} an unsupported custom assignor is in use. Please refer to the documentation or switch to a default assignor "
                "before re-attempting the upgrade.",
            ) from error
        group.create_records(records)
        for new in group.ordered_members():
            self._timers.schedule_session(group.group_id, new.member_id, new.classic_metadata.session_timeout_ms)
        return group

    def _check_upgrade(self, classic: ClassicGroup) -> None:
        config = self._lookup.around.config
        if not config.allows_upgrade:
            reason = "online upgrade is disabled."
        elif not classic.uses_consumer_protocol:
            reason = "the group does not use the consumer embedded protocol."
        elif classic.member_count > config.group_consumer_max_size:
            reason = "the group size exceeds the consumer group maximum size."
        else:
            return
        raise ApiError("GROUP_ID_NOT_FOUND", f"Cannot upgrade classic group {classic.group_id} to consumer group because {reason}")

    def _from_classic_group(self, classic: ClassicGroup) -> ConsumerGroup:
        image = self._lookup.image
        group = ConsumerGroup(self._lookup.around.timeline, classic.group_id)
        epoch = classic.generation_id
        group.set_assignment_metadata(epoch, 0)
        for member in classic.all_members():
            partitions: Partitions = {}
            if member.assignment != EMPTY_ASSIGNMENT:
                assignment = read_assignment(member.assignment)
                if assignment.user_data:
                    raise _CustomAssignor
                partitions = partitions_of(assignment, image)
            if classic.protocol_name is None:
                raise ApiError("UNKNOWN_SERVER_ERROR", "No value present")
            subscription = read_subscription(member.metadata(classic.protocol_name))
            new = ConsumerGroupMember(
                member.member_id,
                member_epoch=epoch,
                previous_member_epoch=epoch,
                instance_id=member.group_instance_id,
                rack_id=subscription.rack_id or None,
                rebalance_timeout_ms=member.rebalance_timeout_ms,
                client_id=member.client_id,
                client_host=member.client_host,
                subscribed_topic_names=names_of(subscription.topics),
                assigned_partitions={topic_id: dict.fromkeys(numbers, epoch) for topic_id, numbers in partitions.items()},
                classic=ClassicMetadata.of_join(member.session_timeout_ms, member.supported_protocols),
            )
            group.update_target_assignment(new.member_id, partitions)
            group.update_member(new)
        group.set_epoch(epoch, self._lookup.topic_hashes.of_topics(group.subscribed_topic_names, image))
        return group

    # Downgrade

    def may_downgrade_without(self, group: ConsumerGroup, members: Sequence[ConsumerGroupMember]) -> bool:
        """Whether the group is converted to a classic group when these members have been removed."""
        config, left = self._lookup.around.config, group.member_count - len(members)
        return group.all_use_classic_protocol_except(members) and left > 0 and config.allows_downgrade and left <= config.group_max_size

    def may_downgrade_with_replaced(self, group: ConsumerGroup, replaced: ConsumerGroupMember) -> bool:
        """Whether the group is converted to a classic group when a static member joins again with the classic protocol."""
        config = self._lookup.around.config
        return (
            group.all_use_classic_protocol_except_one(replaced) and config.allows_downgrade and group.member_count <= config.group_max_size
        )

    def to_classic_group(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerGroupMember],
        joining: ConsumerGroupMember | None,
        records: list[CoordinatorRecord],
        *,
        rebalance: bool,
    ) -> None:
        """Replace a consumer group with a classic group in memory at once, and append the records that do the same."""
        replaced = None
        if joining is not None:
            replaced = group.static_member(joining.instance_id)
            if replaced is None:
                raise ApiError("UNKNOWN_SERVER_ERROR", "joiningMember must be a static member when not null.")
            group.create_tombstones_with_replaced_member(records, replaced.member_id, joining.member_id)
        else:
            group.create_group_tombstone_records(records)
        try:
            classic = self._from_consumer_group(group, leaving, joining, replaced)
        except SchemaError as error:
            raise ApiError("GROUP_ID_NOT_FOUND", f"Cannot downgrade the classic group {group.group_id}: {error}.") from error
        records.append(group_record(classic, classic.assignment()))
        store = self._lookup.around.store
        store.remove(group.group_id)
        store.put(classic)
        for member in classic.all_members():
            self._rebalances.reschedule_heartbeat(classic, member)
        if rebalance:
            self._rebalances.prepare_rebalance(classic)

    def _from_consumer_group(
        self,
        group: ConsumerGroup,
        leaving: Sequence[ConsumerGroupMember],
        joining: ConsumerGroupMember | None,
        replaced: ConsumerGroupMember | None,
    ) -> ClassicGroup:
        now_ms = self._lookup.around.now_ms
        classic = ClassicGroup(
            group.group_id,
            now_ms,
            STABLE,
            generation_id=group.group_epoch,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            current_state_timestamp=now_ms(),
        )
        gone = {member.member_id for member in leaving}
        instance_id = None if joining is None else joining.instance_id
        for member in group.ordered_members():
            if member.member_id not in gone and (instance_id is None or instance_id != member.instance_id):
                classic.add(_classic_member(member))
        if joining is not None:
            classic.add(_classic_member(joining))
        classic.protocol_name = classic.select_protocol()
        classic.subscribed_topics = classic.compute_subscribed_topics()
        for new in classic.all_members():
            member_id = new.member_id
            if joining is not None and replaced is not None and member_id == joining.member_id:
                member_id = replaced.member_id
            version = version_of(new.metadata(classic.protocol_name))
            new.assignment = assignment_bytes(group.target_assignment(member_id), self._lookup.image, version)
        return classic


class _CustomAssignor(Exception):
    """An assignment has data of a custom assignor, which a conversion would lose."""


def _classic_member(member: ConsumerGroupMember) -> ClassicGroupMember:
    classic = member.classic_metadata
    return ClassicGroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        classic.session_timeout_ms,
        CONSUMER_PROTOCOL_TYPE,
        [JoinGroupRequestProtocol(name, metadata) for name, metadata in classic.protocols],
    )
