"""Members of groups in `world`, with the classic protocol and with the consumer protocol (KIP-848).

They commit offsets of their partitions and leave or die. Some stall for so long that they are removed from the group without knowing it. An
`OffsetReader` fetches the offsets now and then.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from kops.errors import ApiError
from kops.protocol.messages import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ConsumerProtocolSubscription,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupResponse,
    LeaveGroupRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from kops.protocol.messages.consumer_group_heartbeat_request import TopicPartitions
from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol
from kops.protocol.messages.join_group_response import JoinGroupResponseMember
from kops.protocol.messages.leave_group_request import MemberIdentity
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kops.protocol.messages.sync_group_request import SyncGroupRequestAssignment
from kops.protocol.record_values import write_versioned
from tests.simulation.coordinators.actors import AGAIN, GROUP, Actor, Script, error_name
from tests.simulation.coordinators.books import Commit, Place, Suspicion

if TYPE_CHECKING:
    from tests.simulation.coordinators.world import CoordinatorWorld

SESSION_MS = 3_000
REBALANCE_MS = 4_000
HEARTBEAT_MS = 500
COMMITS = 0.5
"""The probability that a member commits between two heartbeats."""
REJOIN = {"UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "FENCED_MEMBER_EPOCH", "STALE_MEMBER_EPOCH"}
"""Errors after which a member must join again."""
LAST_COMMIT_BY_NAME = 9
LAST_SUBSCRIPTION = 3


class Member(Actor):
    """What members of both protocols have in common."""

    instance_id: str | None = None

    def __init__(self, world: CoordinatorWorld, group: str, name: str) -> None:
        super().__init__(world, name)
        self.group = group
        self.member_id = ""
        self.epoch = -1
        self.owned: set[int] = set()
        self.is_leaving = self.is_stable = False
        self.stall_ms = 0.0
        self.suspicions: dict[int, Suspicion] = {}

    @property
    def owner(self) -> str:
        """Whose partitions this member has: those of its instance id or, without one, its own."""
        return self.member_id if self.instance_id is None else self.instance_id

    # what other kinds of members override -------------------------------------------------------------------------------------------

    def took(self, given: set[int], epoch: int) -> None:
        """Record that the coordinator has assigned partitions. The member does not have them yet."""
        self.world.owners.grant(self.group, epoch, given, self.owner)

    def joined(self, asked_ms: float) -> None:
        """Record that the member belongs to the group. `asked_ms`: when it asked to join."""

    def served(self, node: int, sent_ms: float) -> None:
        """Record that a node has accepted a heartbeat of this member."""

    def acknowledged(self, sent_ms: float) -> None:
        """Record that a coordinator has accepted a commit of this member."""

    def rejected(self, error: str) -> None:
        """Record that a coordinator has refused a commit, so that the member must join again."""

    # requests -----------------------------------------------------------------------------------------------------------------------

    def suspect_others(self, new: set[int], epoch: int) -> None:
        """Let the other members that still have one of these partitions be suspected."""
        for other in self.world.members_of(self.group):
            if other is not self:
                for number in new & other.owned:
                    other.suspicions[number] = Suspicion(self.world.clock.now_ms, epoch, self.name)

    def check_suspicions(self, node: int, epoch: int, sent_ms: float) -> None:
        """Check the coordinator's answers: while it accepts this member, it must take a partition from the member before it gives that
        partition to another one.
        """
        for number, found in list(self.suspicions.items()):
            if number not in self.owned or epoch > found.epoch:
                del self.suspicions[number]
            elif sent_ms > found.since_ms and self.world.coordinates(node, GROUP, self.group):
                where = f"{self.group}: partition {number} belongs to {found.new_owner} of epoch {found.epoch}"
                raise AssertionError(f"{where} and to {self.name} of epoch {epoch}")

    def _is_fenced(self, error: str) -> bool:
        """Return whether another member has taken the place of this static one. Its client then ends."""
        if error != "FENCED_INSTANCE_ID" or self.instance_id is None:
            return False
        self.world.counts["static members fenced"] += 1
        self.vanish()
        return True

    def _maybe_stall(self) -> Script:
        stall_ms, self.stall_ms = self.stall_ms, 0.0
        if stall_ms:
            self.say("stalls")
            yield self.pause(stall_ms, stall_ms)

    def _commit(self) -> Script:
        """Commit the offsets of the member's partitions. Return whether the member still belongs to the group, as far as it knows."""
        owned = sorted(self.owned)
        if not owned or self.chance.random() > COMMITS:
            return True
        offsets, now_ms = self.world.offsets, self.world.clock.now_ms
        commits = {number: offsets.begin(Place(self.group, number), now_ms) for number in owned}
        known, suspected = self.world.owners.newest.get(self.group, 0), dict(self.suspicions)
        partitions = [OffsetCommitRequestPartition(number, commit.value) for number, commit in commits.items()]
        request = OffsetCommitRequest(
            self.group,
            self.epoch,
            self.member_id,
            self.instance_id,
            topics=[OffsetCommitRequestTopic(self.world.inputs, partitions=partitions)],
        )
        _, answer = yield from self.ask_coordinator(GROUP, self.group, request, newest=LAST_COMMIT_BY_NAME)
        if isinstance(answer, ApiError):
            return True
        errors = {one.partition_index: error_name(one.error_code) for one in answer.topics[0].partitions}
        for number, error in errors.items():
            self._committed(number, commits[number], error, known, suspected)
        refused = REJOIN & set(errors.values())
        for error in refused:
            self.rejected(error)
        return not refused

    def _committed(self, number: int, commit: Commit, error: str, known: int, suspected: dict[int, Suspicion]) -> None:
        if error == "NONE":
            where = f"{self.group}: {self.name} of epoch {self.epoch} has committed partition {number}"
            self.check_may_commit(where, number, known, suspected)
            self.acknowledged(commit.sent_ms)
            commit.acked_ms = self.world.clock.now_ms
            self.world.counts["offsets committed"] += 1
        elif self._is_fenced(error) or error in REJOIN:
            commit.is_refused = True
            self.world.counts["commits of former members refused"] += 1
        else:
            assert error in AGAIN, f"{self.group}: {self.name} is told {error}"
            self.forget(GROUP, self.group)

    def check_may_commit(self, where: str, number: int, known: int, suspected: dict[int, Suspicion]) -> None:
        """Check that nobody else had this partition when the commit was sent."""
        found = suspected.get(number)
        assert found is None or self.epoch > found.epoch, f"{where}, which {found} has"


class ClassicMember(Member):
    """A member with the classic protocol. It gives up all partitions before it joins the next generation."""

    strategy = "range"
    """The name of the protocol in the group."""

    def __init__(self, world: CoordinatorWorld, group: str, name: str) -> None:
        super().__init__(world, group, name)
        self._asked_ms = 0.0
        self.is_leader = False
        self.start(self._live())

    def check_may_commit(self, where: str, number: int, known: int, suspected: dict[int, Suspicion]) -> None:
        """Check that no later generation had partitions when the commit was sent."""
        assert known <= self.epoch, f"{where} when there was epoch {known}"

    def _live(self) -> Script:
        while not self.is_leaving:
            joined = yield from self._join()
            if joined is not None and (yield from self._sync(joined)):
                yield from self._stay()
            self.is_stable = False
            self.prepare_to_join()
            yield self.pause(5, 100)
        yield from self.leave()
        self.vanish()

    def leave(self) -> Script:
        """Leave the group."""
        request = LeaveGroupRequest(self.group, members=[MemberIdentity(self.member_id)])
        yield from self.ask_coordinator(GROUP, self.group, request)

    def subscription(self) -> ConsumerProtocolSubscription:
        """Return what the member tells the leader."""
        return ConsumerProtocolSubscription([self.world.inputs])

    def prepare_to_join(self) -> None:
        """Give up the partitions."""
        self.owned = set()

    def deal(self, members: list[JoinGroupResponseMember]) -> dict[str, list[int]]:
        """Return the partitions that the leader assigns to each member."""
        dealt: dict[str, list[int]] = {one.member_id: [] for one in members}
        ids = list(dealt)
        for number in self.world.input_numbers():
            dealt[ids[number % len(ids)]].append(number)
        return dealt

    def take(self, given: set[int]) -> Script:
        """Take the partitions of a generation. Return whether the member stays in it."""
        yield from ()
        self.owned = given
        return True

    def written(self, numbers: list[int]) -> bytes:
        """Return an assignment as the leader writes it."""
        return bytes(numbers)

    def is_outdated(self) -> bool:
        """Return whether the member must join again, because it leads the group and the topic has other partitions now."""
        return False

    def read(self, assignment: bytes) -> set[int]:
        """Return the partitions of an assignment."""
        return set(assignment)

    def _join(self) -> Script:
        """Join the next generation. Return the answer, or None if it failed."""
        subscription = write_versioned(self.subscription(), LAST_SUBSCRIPTION)
        request = JoinGroupRequest(
            self.group,
            SESSION_MS,
            REBALANCE_MS,
            self.member_id,
            self.instance_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(self.strategy, subscription)],
        )
        asked_ms = self.world.clock.now_ms
        _, answer = yield from self.ask_coordinator(GROUP, self.group, request, patience_ms=REBALANCE_MS + 3_000)
        if isinstance(answer, ApiError):
            return None
        error = error_name(answer.error_code)
        if error in ("NONE", "MEMBER_ID_REQUIRED"):
            self.member_id, self._asked_ms = answer.member_id, asked_ms
            return answer if error == "NONE" else None
        self.say(f"JoinGroup: {error}")
        self.refused(error)
        return None

    def refused(self, error: str) -> None:
        """Act on an error of the coordinator."""
        if self._is_fenced(error):
            return
        if error == "UNKNOWN_MEMBER_ID":
            self.member_id = ""
        else:
            assert error in AGAIN | REJOIN, f"{self.group}: {self.name} is told {error}"
            if error in AGAIN:
                self.forget(GROUP, self.group)

    def not_synced(self, error: str) -> None:
        """Act on an error of SyncGroup."""
        self.refused(error)

    def _sync(self, joined: JoinGroupResponse) -> Script:
        """Get the member's partitions of the generation. The leader assigns the partitions."""
        assignments = []
        self.is_leader = joined.leader == self.member_id
        if self.is_leader and not joined.skip_assignment:
            dealt = self.deal(joined.members)
            assignments = [SyncGroupRequestAssignment(one, self.written(numbers)) for one, numbers in dealt.items()]
        request = SyncGroupRequest(
            self.group,
            joined.generation_id,
            self.member_id,
            self.instance_id,
            protocol_type="consumer",
            protocol_name=self.strategy,
            assignments=assignments,
        )
        _, answer = yield from self.ask_coordinator(GROUP, self.group, request, patience_ms=REBALANCE_MS + 3_000)
        if isinstance(answer, ApiError):
            return False
        error = error_name(answer.error_code)
        if error != "NONE":
            self.not_synced(error)
            return False
        self.epoch = joined.generation_id
        given = self.read(answer.assignment)
        self.took(given, self.epoch)
        self.joined(self._asked_ms)
        self.say(f"has {sorted(given)} of generation {self.epoch}")
        self.world.counts["generations"] += joined.leader == self.member_id
        return (yield from self.take(given))

    def _stay(self) -> Script:
        """Send heartbeats and commits until a new generation begins or the member leaves."""
        self.is_stable = True
        while not self.is_leaving:
            yield self.pause(HEARTBEAT_MS * 0.5, HEARTBEAT_MS)
            yield from self._maybe_stall()
            if not (yield from self._commit()) or self.is_outdated():
                return
            sent_ms = self.world.clock.now_ms
            request = HeartbeatRequest(self.group, self.epoch, self.member_id, self.instance_id)
            node, answer = yield from self.ask_coordinator(GROUP, self.group, request)
            if isinstance(answer, ApiError):
                continue
            error = error_name(answer.error_code)
            if error != "NONE":
                self.refused(error)
                if error in REJOIN:
                    return
            else:
                self.served(node, sent_ms)


class ConsumerMember(Member):
    """A member with the consumer protocol."""

    def __init__(self, world: CoordinatorWorld, group: str, name: str) -> None:
        super().__init__(world, group, name)
        self.member_id = name
        self.epoch = 0
        self._is_whole = True
        """Whether the next heartbeat is complete. The first one is, and each one after a heartbeat that failed."""
        self.start(self._live())

    def _live(self) -> Script:
        reported: set[int] = set()
        while not self.is_leaving:
            yield from self._maybe_stall()
            sent_ms, was_whole = self.world.clock.now_ms, self._is_whole
            request = ConsumerGroupHeartbeatRequest(self.group, self.member_id, self.epoch, self.instance_id)
            if was_whole:
                request.rebalance_timeout_ms = REBALANCE_MS
                request.subscribed_topic_names = [self.world.inputs]
            owned = set(self.owned)
            if was_whole or owned != reported:
                request.topic_partitions = [TopicPartitions(self.world.inputs_id, sorted(owned))] if owned else []
            node, answer = yield from self.ask_coordinator(GROUP, self.group, request)
            if isinstance(answer, ApiError):
                self._is_whole = True
            elif (error := error_name(answer.error_code)) != "NONE":
                self.refused(error)
            else:
                self._is_whole, reported = False, owned
                self.check_suspicions(node, answer.member_epoch, sent_ms)
                if self.epoch:
                    self.served(node, sent_ms)
                else:
                    self.joined(sent_ms)
                yield from self._take(answer)
                if self.owned == reported and not (yield from self._commit()):
                    self._is_whole = True
            if self.owned == reported or self._is_whole:
                yield self.pause(HEARTBEAT_MS * 0.5, HEARTBEAT_MS)
        yield from self.leave()
        self.vanish()

    def leave(self) -> Script:
        """Leave the group."""
        yield from self.ask_coordinator(GROUP, self.group, ConsumerGroupHeartbeatRequest(self.group, self.member_id, -1))

    def refused(self, error: str) -> None:
        """Act on an error of the coordinator."""
        self.say(f"ConsumerGroupHeartbeat: {error}")
        self._is_whole = True
        if self._is_fenced(error):
            return
        if error in ("FENCED_MEMBER_EPOCH", "UNKNOWN_MEMBER_ID"):
            self.epoch, self.is_stable = 0, False
            self.owned.clear()
            self.suspicions.clear()
        else:
            assert error in AGAIN, f"{self.group}: {self.name} is told {error}"
            self.forget(GROUP, self.group)

    def _take(self, answer: ConsumerGroupHeartbeatResponse) -> Script:
        """Give up the partitions that the member must not keep, which takes a while, and then take the others."""
        if answer.assignment is not None:
            given = {number for topic in answer.assignment.topic_partitions for number in topic.partitions}
            new = given - self.owned
            self.took(given, answer.member_epoch)
            self.suspect_others(new, answer.member_epoch)
            self.epoch = answer.member_epoch
            if self.owned - given:
                self.owned |= new
                yield self.pause(0, 600)
            self.owned = given
            self.say(f"has {sorted(given)} of epoch {self.epoch}")
            self.world.counts["assignments"] += 1
        self.epoch, self.is_stable = answer.member_epoch, True


class OffsetReader(Actor):
    """A client that fetches the offsets of groups."""

    def __init__(self, world: CoordinatorWorld) -> None:
        super().__init__(world, "offsets")
        self.start(self._live())

    def _live(self) -> Script:
        while True:
            yield self.pause(50, 400)
            group = self.chance.choice(self.world.groups)
            yield from self.read(group, is_stable=self.chance.random() < 0.5)

    def read(self, group: str, *, is_stable: bool) -> Script:
        """Fetch the offsets of a group once. Return them by partition, or None if the fetch failed."""
        world = self.world
        topic, numbers = world.places_of(group)
        wanted = OffsetFetchRequestGroup(group, topics=[OffsetFetchRequestTopics(topic, world.topic_id(topic), list(numbers))])
        asked_ms = world.clock.now_ms
        request = OffsetFetchRequest(groups=[wanted], require_stable=is_stable)
        node, answer = yield from self.ask_coordinator(GROUP, group, request, newest=LAST_COMMIT_BY_NAME)
        if isinstance(answer, ApiError):
            return None
        if answer.groups[0].error_code:
            assert error_name(answer.groups[0].error_code) in AGAIN, f"{group}: {error_name(answer.groups[0].error_code)}"
            self.forget(GROUP, group)
            return None
        found = {one.partition_index: one for one in answer.groups[0].topics[0].partitions}
        if any(one.error_code for one in found.values()):
            errors = {error_name(one.error_code) for one in found.values()} - {"NONE"}
            assert errors <= AGAIN, f"{group}: {errors}"
            world.counts["offsets not stable"] += 1
            return None
        # Without `require_stable`, a new coordinator answers with the offsets that it knows to be committed. Its high watermark may lag.
        is_newest = is_stable and world.coordinates(node, GROUP, group)
        for number, one in found.items():
            world.offsets.fetched(Place(group, number), one.committed_offset, asked_ms, f"node {node}", is_newest=is_newest)
        return {number: one.committed_offset for number, one in found.items()}


def whole(numbers: Iterable[int], members: Iterable[Member]) -> bool:
    """Return whether the members have all partitions, each exactly once, and all in the same epoch."""
    found = list(members)
    owned = sorted(number for member in found for number in member.owned)
    return all(one.is_stable for one in found) and owned == sorted(numbers) and len({one.epoch for one in found}) == 1
