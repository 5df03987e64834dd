"""A member of a classic consumer group, without a socket or clock: answers go in, requests and changes of partitions come out.

`next_event(now_ms)` returns the next step, or None if there is nothing to do before `wake_ms`. `receive` takes the answer to a `Send`.

    UNJOINED -> Prepare -> JoinGroup -> (leader: Divide) -> SyncGroup -> STABLE: Take, heartbeats
    STABLE -> (another rebalance, or partitions to revoke) -> Prepare -> JoinGroup ...

Source: Kafka's AbstractCoordinator (JoinGroup, SyncGroup and Heartbeat response handlers, joinGroupIfNeeded) and ConsumerCoordinator
(onJoinPrepare, onLeaderElected, onJoinComplete), Heartbeat; KIP-394 (the member id first), KIP-345 (static members), KIP-429 (cooperative
rebalances), KIP-814 (a static leader that joins again assigns nothing).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.client.groups.assignors import Assignor, Racks, Subscription
from kops.client.groups.consumer_protocol import PROTOCOL_TYPE, read_assignment, read_subscription, write_assignment, write_subscription
from kops.errors import ApiError
from kops.protocol.errors import by_code, by_name

if TYPE_CHECKING:
    from kops.protocol.declaration import Message
    from kops.protocol.messages import HeartbeatRequest, JoinGroupResponse, SyncGroupResponse
    from kops.records.log_offsets import TopicPartition

NO_GENERATION: Final = -1
_JOIN_LAPSE_MS: Final = 5000
_MOVED: Final = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_COORDINATOR_GONE: Final = (*_MOVED, "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")
_AT_ONCE: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "MEMBER_ID_REQUIRED", "REBALANCE_IN_PROGRESS")
_REASON_LENGTH: Final = 255
_LOST: Final = ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "FENCED_INSTANCE_ID")
_SYNC_ERRORS: Final = ("GROUP_AUTHORIZATION_FAILED", "REBALANCE_IN_PROGRESS", *_LOST, "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR")
_JOIN_ERRORS: Final = (
    *("COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_MEMBER_ID", "COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "FENCED_INSTANCE_ID"),
    *("INCONSISTENT_GROUP_PROTOCOL", "INVALID_SESSION_TIMEOUT", "INVALID_GROUP_ID", "GROUP_AUTHORIZATION_FAILED", "GROUP_MAX_SIZE_REACHED"),
    *("UNSUPPORTED_VERSION", "REBALANCE_IN_PROGRESS"),
)
_EXCEPTIONS: Final = {"NETWORK_EXCEPTION": "DisconnectException", "UNJOINED": "UnjoinedGroupException", "": "KafkaException"}
_SESSION_LIMITS: Final = (
    "allowed: its group.min.session.timeout.ms to its group.max.session.timeout.ms (6000 to 1800000 if they are not set)"
)
_OTHER_TOPICS: Final = "subscription has changed"
_SELF_CHECKING: Final = "cooperative-sticky"


class State(Enum):
    """The state of a member in a rebalance."""

    UNJOINED = auto()
    PREPARING = auto()
    JOINING = auto()
    DIVIDING = auto()
    SYNCING = auto()
    STABLE = auto()


class Send(NamedTuple):
    """A request for the coordinator."""

    message: Message
    timeout_ms: float | None = None


class FindCoordinator(NamedTuple):
    """Look for the coordinator, then call `coordinator_found`."""


class Prepare(NamedTuple):
    """Before a rebalance: commit, stop reading `revoked`, then call `prepared`. Lost partitions may already belong to others."""

    revoked: Sequence[TopicPartition]
    is_lost: bool


class Divide(NamedTuple):
    """This member is the leader: look up the partitions of all topics to which `members` subscribe, and call `divide`. When they change,
    call `rejoin`. With `keeps_assignment`, a static leader has come back, and everybody keeps what they have (KIP-814)."""

    members: Mapping[str, Subscription]
    keeps_assignment: bool = False


class GiveUp(NamedTuple):
    """Commit and stop reading these partitions. The next rebalance assigns them to others."""

    keys: Sequence[TopicPartition]


class Take(NamedTuple):
    """Start reading these partitions from their committed offsets."""

    keys: Sequence[TopicPartition]


Event = Send | FindCoordinator | Prepare | Divide | GiveUp | Take


@dataclass(frozen=True, slots=True)
class GroupSettings:
    """A member's settings. Times are ms."""

    group_id: str
    topics: Sequence[str]
    session_timeout_ms: int = 45_000
    rebalance_timeout_ms: int = 300_000
    heartbeat_interval_ms: int = 3_000
    request_timeout_ms: int = 30_000
    instance_id: str | None = None
    rack: str | None = None


class Membership:
    """The state of one member. `backoff_ms(failures)` is the pause after a failure. Readers may use generation, member id and `owned`."""

    def __init__(self, settings: GroupSettings, assignors: Sequence[Assignor], backoff_ms: Callable[[int], float]) -> None:
        self.settings = settings
        self.state = State.UNJOINED
        self.generation_id = NO_GENERATION
        self.member_id = ""
        self.owned: list[TopicPartition] = []
        self.is_leader = False
        self.why = ""  # the last reason for a wait
        self.accepts: Callable[[str], bool] | None = None  # whether a topic is subscribed to, if `settings.topics` are not all (a pattern)
        self._assignors = {assignor.name: assignor for assignor in assignors}
        self._is_cooperative = all(assignor.is_cooperative for assignor in assignors)
        self._backoff_ms = backoff_ms
        self._protocol: str | None = None
        self._has_coordinator = False
        self._is_finding = False
        self._must_join = True
        self._must_prepare = True
        self._reason = ""
        self._failures = 0
        self._retry_ms = 0.0
        self._heartbeat_ms = 0.0
        self._session_ms = float("inf")  # when the session ends without a heartbeat
        self._is_beating = False
        self._beat_failures = 0
        self._pending: Message | None = None  # the JoinGroup or SyncGroup whose answer counts
        self._keeps_assignment = False
        self._joined: GroupSettings | None = None  # with the topics of the last JoinGroup
        self._may_leave = False  # whether the coordinator may know the member id
        self._error: ApiError | None = None
        self._events: deque[Event] = deque()

    # what is next

    def next_event(self, now_ms: float) -> Event | None:
        """Return the next step. Raises ApiError if a retry would not help."""
        if self._error is not None:
            raise self._error
        if self._events:
            return self._events.popleft()
        if self._has_coordinator and now_ms >= self._session_ms and self.state in (State.SYNCING, State.STABLE):
            self._coordinator_gone("no heartbeat was answered within the session time-out", now_ms)
        if not self._has_coordinator:
            return self._find(now_ms)
        if self._joined is not self.settings and self._has_other_topics():
            self.rejoin(_OTHER_TOPICS, keeps_reason=True)
        if self._may_join:
            return self._join(now_ms)
        if self.state in (State.DIVIDING, State.SYNCING, State.STABLE) and not self._is_beating and now_ms >= self._heartbeat_ms:
            return self._beat(now_ms)
        return None

    @property
    def _may_join(self) -> bool:
        """Whether a rebalance is necessary, and none is under way. If the member was reset meanwhile, it loses its partitions at once, but
        joins again after the answer."""
        is_free = self._pending is None or self._must_prepare
        return self._must_join and self.state in (State.UNJOINED, State.STABLE) and is_free

    def _has_other_topics(self) -> bool:
        """Whether the subscription is not the one of the last JoinGroup. One that has changed back meanwhile needs no rebalance."""
        return self._joined is not None and frozenset(self._joined.topics) != frozenset(self.settings.topics)

    def wake_ms(self) -> float:
        """The time at which there may be a step without an answer."""
        if not self._has_coordinator or self._may_join:
            return self._retry_ms
        if self.state is State.STABLE and not self._is_beating:
            return self._heartbeat_ms
        return self._session_ms

    def heartbeat(self, now_ms: float) -> Send | None:
        """Return the heartbeat that is due. Between calls of `next_event`, it keeps the session alive while the program is busy."""
        is_member = self.state in (State.PREPARING, State.DIVIDING, State.SYNCING, State.STABLE)
        if not is_member or not self.member_id or self.generation_id == NO_GENERATION or not self._has_coordinator:
            return None
        return None if self._is_beating or now_ms < self._heartbeat_ms else self._beat(now_ms)

    @property
    def heartbeat_ms(self) -> float:
        """The time of the next heartbeat."""
        return float("inf") if self._is_beating or not self._has_coordinator else self._heartbeat_ms

    def _find(self, now_ms: float) -> Event | None:
        if self._is_finding or now_ms < self._retry_ms:
            return None
        self._is_finding = True
        return FindCoordinator()

    def _join(self, now_ms: float) -> Event | None:
        if now_ms < self._retry_ms:
            return None
        if self._must_prepare:
            self.state = State.PREPARING
            is_lost = self.generation_id == NO_GENERATION or not self.member_id
            gone = self.owned if is_lost or not self._is_cooperative else [key for key in self.owned if not self._is_subscribed(key)]
            return Prepare(list(gone), is_lost)
        from kops.protocol.messages import JoinGroupRequest
        from kops.protocol.messages.join_group_request import JoinGroupRequestProtocol

        settings = self.settings
        self.state = State.JOINING
        self.is_leader = False
        message = JoinGroupRequest(
            group_id=settings.group_id,
            session_timeout_ms=settings.session_timeout_ms,
            rebalance_timeout_ms=settings.rebalance_timeout_ms,
            member_id=self.member_id,
            group_instance_id=settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name, self._subscription(one)) for name, one in self._assignors.items()],
            reason=self._reason[:_REASON_LENGTH],
        )
        self._pending, self._may_leave = message, True
        self._joined = settings
        return Send(message, max(settings.request_timeout_ms, settings.rebalance_timeout_ms + _JOIN_LAPSE_MS))

    def _is_subscribed(self, key: TopicPartition) -> bool:
        return key.topic in self.settings.topics or (self.accepts is not None and self.accepts(key.topic))

    def _subscription(self, assignor: Assignor) -> bytes:
        generation = None if self.generation_id == NO_GENERATION else self.generation_id
        return write_subscription(Subscription(self.settings.topics, self.owned, generation, assignor.user_data(), rack=self.settings.rack))

    def _beat(self, now_ms: float) -> Send:
        from kops.protocol.messages import HeartbeatRequest

        self._is_beating = True
        if self._session_ms == float("inf"):  # the coordinator was found again
            self._session_ms = now_ms + self.settings.session_timeout_ms
        self._heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
        return Send(HeartbeatRequest(self.settings.group_id, self.generation_id, self.member_id, self.settings.instance_id))

    # completed steps

    def coordinator_found(self) -> None:
        """Continue with the coordinator that was found."""
        self._has_coordinator, self._is_finding = True, False

    def coordinator_not_found(self, why: str, now_ms: float) -> None:
        """Look for the coordinator again later."""
        self._is_finding = False
        self._pause(why, now_ms)

    def prepared(self, revoked: Sequence[TopicPartition]) -> None:
        """Continue after `Prepare`. The member no longer reads `revoked`."""
        gone = set(revoked)
        self.owned = [key for key in self.owned if key not in gone]
        self._must_prepare = False
        self.state = State.UNJOINED

    def coordinator_lost(self, why: str, now_ms: float) -> None:
        """Look for the coordinator again, because another request has found that it is gone."""
        if self._has_coordinator:
            self._coordinator_gone(why, now_ms)

    def forget(self, reason: str, *, keeps_take: bool = False) -> None:
        """Begin again without a member id, because this member has left the group. With `keeps_take`, a rebalance is completed before."""
        self._begin_again(reason, keeps_member=False)
        if any(isinstance(event, Send) for event in self._events):
            self._pending = None  # it is not sent
        self._events = deque(event for event in self._events if keeps_take and isinstance(event, Take))

    def add_topics(self, topics: Iterable[str]) -> None:
        """Subscribe to topics that match the pattern and that the leader has assigned. They need no rebalance."""
        added = replace(self.settings, topics=sorted({*self.settings.topics, *topics}))
        if not self._has_other_topics():
            self._joined = added
        self.settings = added

    def take_error(self) -> ApiError | None:
        """Return the error that ended the membership, once. After that, the member joins again."""
        error, self._error = self._error, None
        if error is not None:
            self.state = State.UNJOINED
            self._must_join = True
        return error

    def divide(self, members: Mapping[str, Subscription], topics: Mapping[str, Racks]) -> None:
        """Assign the partitions of these topics, and send each member its assignment."""
        if self.state is not State.DIVIDING:
            return
        if self._keeps_assignment:
            self._sync({})
            return
        assert self._protocol is not None
        assignment = self._assignors[self._protocol].assign(topics, members)
        if self._is_cooperative and self._protocol != _SELF_CHECKING and _gives_owned(members, assignment):
            self._fail_rebalance("the assignor gives partitions to members before their owners have revoked them")
            return
        self._sync({name: write_assignment(keys) for name, keys in assignment.items()})

    def rejoin(self, reason: str, *, keeps_reason: bool = False) -> None:
        """Begin a rebalance, because partitions were added or the answer to a commit requires it. With `keeps_reason`, a rebalance that is
        already necessary keeps its reason."""
        if not (self._must_join and keeps_reason):
            self._reason = reason
        self._must_join = True

    def commit_failed(self, name: str, generation_id: int, now_ms: float) -> None:
        """Handle the error of a commit in this generation, if it concerns the membership. Kafka's client also gives up a generation that is
        newer than the commit, unless it is joining."""
        if name in _COORDINATOR_GONE:
            self._coordinator_gone(words_of(name), now_ms)
        elif name == "REBALANCE_IN_PROGRESS":
            self.rejoin("offset commit failed since group is already rebalancing")
        elif name in ("UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION"):
            if generation_id == self.generation_id or self.state is not State.JOINING:
                self._reset(name, "OFFSET_COMMIT")
        elif name == "FENCED_INSTANCE_ID" and generation_id == self.generation_id:
            self._fail(name)

    def leave(self, reason: str = "the consumer is being closed", *, static_too: bool = False) -> Message | None:
        """Return the request that leaves the group, or None for static members, which stay until their session ends (unless
        `static_too`)."""
        from kops.protocol.messages import LeaveGroupRequest
        from kops.protocol.messages.leave_group_request import MemberIdentity

        instance_id = self.settings.instance_id
        if not self.member_id or (instance_id is not None and not static_too) or not self._has_coordinator or not self._may_leave:
            return None
        member = MemberIdentity(self.member_id, None, reason[:_REASON_LENGTH])
        return LeaveGroupRequest(group_id=self.settings.group_id, members=[member])

    # answers

    def receive(self, sent: Message, answer: Message | ApiError, now_ms: float) -> None:
        """Handle the answer to a `Send`, or the error of the network."""
        from kops.protocol.messages import HeartbeatRequest, JoinGroupResponse, SyncGroupResponse

        error = answer.name if isinstance(answer, ApiError) else by_code(answer.error_code).name  # type: ignore[attr-defined]  # all have it
        if isinstance(sent, HeartbeatRequest):
            self._is_beating = False
            self._on_heartbeat(sent, error, now_ms, is_gone=_is_gone(error, answer))
            return
        if sent is not self._pending:
            return
        self._pending = None
        if self.state not in (State.JOINING, State.SYNCING) and error == "NONE":
            assert isinstance(answer, JoinGroupResponse | SyncGroupResponse)
            self._on_late(answer, now_ms)
        elif error != "NONE":
            self._on_failure(sent, error, answer, now_ms)
        elif isinstance(answer, JoinGroupResponse):
            self._on_join(answer, now_ms)
        elif isinstance(answer, SyncGroupResponse):
            self._on_sync(answer, now_ms)

    def _on_late(self, answer: JoinGroupResponse | SyncGroupResponse, now_ms: float) -> None:
        """Handle a JoinGroup or SyncGroup that succeeded after a heartbeat had ended the rebalance. Only a JoinGroup waits before the next
        one."""
        from kops.protocol.messages import JoinGroupResponse

        if answer.protocol_type not in (None, PROTOCOL_TYPE):
            self._fail_rebalance()
        elif isinstance(answer, JoinGroupResponse):
            self._reason = _failed_reason("UNJOINED")
            self._pause("the group was left during the rebalance", now_ms)
        else:
            self._reason = _failed_reason("ILLEGAL_GENERATION")

    def _on_failure(self, sent: Message, error: str, answer: Message | ApiError, now_ms: float) -> None:
        """Handle a failed JoinGroup or SyncGroup."""
        from kops.protocol.messages import JoinGroupRequest, JoinGroupResponse

        is_join = isinstance(sent, JoinGroupRequest)
        is_expected = isinstance(answer, ApiError) or error in (_JOIN_ERRORS if is_join else _SYNC_ERRORS)
        is_current = self.state in (State.JOINING, State.SYNCING)
        is_gone = _is_gone(error, answer)
        if is_current:
            self.state = State.UNJOINED
        if error == "MEMBER_ID_REQUIRED" and isinstance(answer, JoinGroupResponse):
            self.member_id, self.generation_id = answer.member_id, NO_GENERATION
            self._reason = f"need to re-join with the given member-id: {answer.member_id}"
            return
        if error == "UNKNOWN_MEMBER_ID" or (error == "ILLEGAL_GENERATION" and not is_join):
            if is_current:
                self._reset(error, "JOIN_GROUP" if is_join else "SYNC_GROUP")
        elif is_gone:
            self._coordinator_gone(str(answer) if isinstance(answer, ApiError) else words_of(error), now_ms)
        elif error != "REBALANCE_IN_PROGRESS" and not (error == "COORDINATOR_LOAD_IN_PROGRESS" and is_join):
            self._fail_with(error, answer, is_expected=is_expected)
        self._reason = _failed_reason(error if is_expected else "")
        if error not in _AT_ONCE and not is_gone and self._error is None:  # a program that goes on after an error tries again at once
            self._pause(words_of(error), now_ms)

    def _on_join(self, answer: JoinGroupResponse, now_ms: float) -> None:
        if answer.protocol_type not in (None, PROTOCOL_TYPE):
            self._fail_rebalance()
            return
        self.generation_id, self.member_id, self._protocol = answer.generation_id, answer.member_id, answer.protocol_name
        self.is_leader = answer.leader == answer.member_id
        self._heartbeat_ms = now_ms + self.settings.heartbeat_interval_ms
        self._session_ms = now_ms + self.settings.session_timeout_ms
        if answer.protocol_name not in self._assignors:
            self._fail_rebalance(f"the coordinator selected an assignor that this member does not have: {answer.protocol_name}")
            return
        if not self.is_leader:
            self._sync({})
            return
        self.state = State.DIVIDING
        self._keeps_assignment = answer.skip_assignment
        members = {one.member_id: read_subscription(one.metadata, one.group_instance_id) for one in answer.members}
        self._events.append(Divide(members, answer.skip_assignment))

    def _sync(self, assignments: Mapping[str, bytes]) -> None:
        from kops.protocol.messages import SyncGroupRequest
        from kops.protocol.messages.sync_group_request import SyncGroupRequestAssignment

        self.state = State.SYNCING
        message = SyncGroupRequest(
            group_id=self.settings.group_id,
            generation_id=self.generation_id,
            member_id=self.member_id,
            group_instance_id=self.settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._protocol,
            assignments=[SyncGroupRequestAssignment(name, data) for name, data in assignments.items()],
        )
        self._pending = message
        self._events.append(Send(message))

    def _on_sync(self, answer: SyncGroupResponse, now_ms: float) -> None:
        if answer.protocol_type not in (None, PROTOCOL_TYPE) or answer.protocol_name not in (None, self._protocol):
            self._fail_rebalance()
            return
        assert self._protocol is not None
        assigned = read_assignment(answer.assignment)
        self.state = State.STABLE
        self._must_join, self._must_prepare = False, True
        self._reason, self._failures, self.why = "", 0, ""
        self._session_ms = now_ms + self.settings.session_timeout_ms
        if not all(self._is_subscribed(key) for key in assigned):
            self.rejoin("received assignment does not match the current subscription")
            return
        self._assignors[self._protocol].on_assignment(assigned, self.generation_id)
        revoked = [key for key in self.owned if key not in assigned]
        added = [key for key in assigned if key not in self.owned]
        self.owned = assigned
        if revoked:
            self._events.append(GiveUp(revoked))
            self.rejoin("need to revoke partitions and re-join")
        self._events.append(Take(added))
        if self._has_other_topics():
            self.rejoin(_OTHER_TOPICS, keeps_reason=True)

    def _on_heartbeat(self, sent: HeartbeatRequest, error: str, now_ms: float, *, is_gone: bool) -> None:
        """Handle the answer to a heartbeat. Only a fenced instance id ends the membership; other errors show in the next rebalance."""
        is_current = (sent.generation_id, sent.member_id) == (self.generation_id, self.member_id)
        is_stale = error in _LOST and not is_current
        if error == "REBALANCE_IN_PROGRESS" and self.state is State.STABLE:
            self.rejoin("group is already rebalancing")
        if error in ("NONE", "REBALANCE_IN_PROGRESS") or is_stale:
            self._session_ms = now_ms + self.settings.session_timeout_ms
            self._failures = self._beat_failures = 0
            return
        self._heartbeat_ms = now_ms + self._backoff_ms(self._beat_failures)
        self._beat_failures += 1
        if is_gone:
            self._coordinator_gone(words_of(error), now_ms)
        elif error in _LOST:
            if error == "FENCED_INSTANCE_ID":
                self._fail(error)
            self._reset(error, "HEARTBEAT")

    def _reset(self, error: str, api: str) -> None:
        """Start again, because the coordinator does not know the generation or the member."""
        self._begin_again(f"encountered {error} from {api} response", keeps_member=error == "ILLEGAL_GENERATION")

    def _begin_again(self, reason: str, *, keeps_member: bool) -> None:
        self.generation_id = NO_GENERATION
        if not keeps_member:
            self.member_id = ""
        self.state = State.UNJOINED
        self._may_leave = False
        self._must_join = self._must_prepare = True
        self._reason = reason

    def _coordinator_gone(self, why: str, now_ms: float) -> None:
        self._has_coordinator = self._is_beating = False
        self._session_ms = float("inf")
        self._events = deque(event for event in self._events if not isinstance(event, Send))
        if self._pending is not None:  # its answer will not come
            self._pending = None
            self.state = State.UNJOINED
            self._reason = _failed_reason("NETWORK_EXCEPTION")
        self._pause(why, now_ms)

    def _pause(self, why: str, now_ms: float) -> None:
        self.why = why
        self._retry_ms = now_ms + self._backoff_ms(self._failures)
        self._failures += 1

    def _fail_rebalance(self, text: str = "") -> None:
        self._reason = _failed_reason("INCONSISTENT_GROUP_PROTOCOL")
        self._fail("INCONSISTENT_GROUP_PROTOCOL", text)

    def _fail_with(self, error: str, answer: Message | ApiError, *, is_expected: bool) -> None:
        """End the membership. A code that the coordinator should not send here must not look as if a retry would help."""
        if is_expected or not by_name(error).retriable:
            self._fail(error, str(answer) if isinstance(answer, ApiError) else "")
        else:
            self._fail("UNKNOWN_SERVER_ERROR", f"{error}, {words_of(error)}")

    def _fail(self, name: str, text: str = "") -> None:
        if name == "INVALID_SESSION_TIMEOUT":
            text = f"session.timeout.ms={self.settings.session_timeout_ms}: the broker does not allow it; {_SESSION_LIMITS}"
        self._error = ApiError(name, f"group {self.settings.group_id}: {text or words_of(name)}")


def _is_gone(error: str, answer: Message | ApiError) -> bool:
    """Whether an answer means that the coordinator must be looked up. Codes of lost connections do not, if a broker sends them."""
    return error in (_COORDINATOR_GONE if isinstance(answer, ApiError) else _MOVED)


def _failed_reason(error: str) -> str:
    """Return why a member joins again, with the name of Kafka's exception. An empty error is one that Kafka's client does not expect."""
    exception = _EXCEPTIONS.get(error) or by_name(error).exception
    return f"rebalance failed due to {exception}"


def _gives_owned(members: Mapping[str, Subscription], assignment: Mapping[str, Sequence[TopicPartition]]) -> bool:
    """Whether a member gets a partition that another one must revoke first."""
    added = {key for name, keys in assignment.items() for key in keys if key not in members[name].owned}
    return any(key in added for name, keys in assignment.items() for key in members[name].owned if key not in keys)


def words_of(name: str) -> str:
    """Return the text of an error."""
    return by_name(name).words
