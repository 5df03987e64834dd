"""Commits offsets of the group, and reads them: by the program, periodically, and before a rebalance.

Source: Kafka's ConsumerCoordinator (sendOffsetCommitRequest, OffsetCommitResponseHandler, OffsetFetchResponseHandler, autocommit),
CommitRequestManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kops.client.consumer.errors import (
    CommitFailedError,
    FencedInstanceIdError,
    RebalanceInProgressError,
    RetriableCommitFailedError,
    error_named,
)
from kops.client.consumer.groups.coordinator import MOVED, Call
from kops.client.consumer.parts.requests import FOREVER, Outcome
from kops.client.consumer.records import OffsetAndMetadata
from kops.client.errors import KafkaError
from kops.protocol.declaration import ZERO_UUID
from kops.protocol.errors import by_code, by_name
from kops.protocol.messages import OffsetCommitRequest, OffsetCommitResponse, OffsetFetchRequest, OffsetFetchResponse
from kops.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kops.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.consumer.groups.coordinator import Coordinator
    from kops.client.consumer.options import ConsumerOptions
    from kops.client.consumer.parts.state import Subscriptions
    from kops.protocol.declaration import Message
    from kops.protocol.messages.offset_fetch_response import OffsetFetchResponseGroup

COMMIT_VERSIONS: Final = range(2, 10)
FETCH_VERSIONS: Final = range(8, 10)
COMMIT_VERSIONS_WITH_IDS: Final = range(2, 11)
FETCH_VERSIONS_WITH_IDS: Final = range(8, 11)
Offsets = Mapping[TopicPartition, OffsetAndMetadata]
_MOVED: Final = MOVED | {"REQUEST_TIMED_OUT"}
_EXPECTED: Final = frozenset(
    (
        *_MOVED,
        *("COORDINATOR_LOAD_IN_PROGRESS", "UNKNOWN_TOPIC_OR_PARTITION"),
        *("GROUP_AUTHORIZATION_FAILED", "OFFSET_METADATA_TOO_LARGE", "INVALID_COMMIT_OFFSET_SIZE"),
    )
)
"""Errors of commits that Kafka's client knows. After any other one the commit has failed, even if its code allows a retry elsewhere."""
_NOT_THIS_MEMBER: Final = ("FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION")
_REBALANCING: Final = (
    "offsets can't be committed while the group is rebalancing; call poll until the rebalance is over, then commit the new positions"
)
_NOT_A_MEMBER: Final = (
    "offsets can't be committed, because this consumer is not a member of the group: it has not joined yet, or others have its partitions. "
    "Raise max.poll.interval.ms or lower max.poll.records if poll is called too rarely"
)


class Identity(NamedTuple):
    """The member and its generation (or epoch) in a commit."""

    member_id: str = ""
    generation_id: int = -1


class Member(Protocol):
    """What a commit needs to know about the membership."""

    def identity(self) -> Identity | None:
        """Return the identity, or None if the member is not part of the group now."""

    def is_rebalancing(self) -> bool:
        """Whether a rebalance is in progress."""

    def is_current(self, identity: Identity) -> bool:
        """Whether the member has still this identity, possibly in a rebalance."""

    def is_joining(self) -> bool:
        """Whether the member waits for a new identity."""

    def commit_failed(self, name: str, identity: Identity) -> None:
        """Handle the error of a commit with this identity."""


class _NoMember:
    """The membership of a consumer whose partitions the program assigns."""

    def identity(self) -> Identity | None:
        """Return the identity of no member."""
        return Identity()

    def is_rebalancing(self) -> bool:
        """Return False: there is no group that rebalances."""
        return False

    def is_current(self, identity: Identity) -> bool:
        """Return True: this identity never changes."""
        return True

    def is_joining(self) -> bool:
        """Return False: there is no group to join."""
        return False

    def commit_failed(self, name: str, identity: Identity) -> None:
        """Nothing depends on it."""


NO_MEMBER: Final = _NoMember()


class Committed(NamedTuple):
    """A commit that is over, for its callback and the interceptors."""

    callback: Callable[[Offsets, Exception | None], object] | None
    offsets: Offsets
    error: Exception | None


class Commits:
    """The commits of a consumer. `member` is set while a group assigns its partitions. `finished` are those whose callback is due."""

    def __init__(self, options: ConsumerOptions, coordinator: Coordinator, subscriptions: Subscriptions, now_ms: float) -> None:
        self.member: Member = NO_MEMBER
        self.finished: deque[Committed] = deque()
        self.given: dict[TopicPartition, OffsetAndMetadata] = {}  # positions of records that the program has not taken yet
        self._options = options
        self._coordinator = coordinator
        self._subscriptions = subscriptions
        self._auto_ms = FOREVER if options.auto_commit_ms is None else now_ms + options.auto_commit_ms
        self._auto: Outcome | None = None
        self._latest: dict[TopicPartition, OffsetAndMetadata] | None = None  # what a commit before a rebalance commits
        self._asynchronous = 0
        self._initial: tuple[frozenset[TopicPartition], Identity | None, Outcome] | None = None

    # commits

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets after the records that the program has taken."""
        found = self._subscriptions.consumed()
        if self.given:
            found |= {key: one for key, one in self.given.items() if key in found}
        return found

    def commit(self, offsets: Offsets, deadline_ms: float, *, retries: bool) -> Outcome:
        """Commit offsets. With `retries`, errors that a retry may heal are not an outcome before the deadline."""
        return self._commit(dict(offsets), deadline_ms, retries=retries)

    def commit_before_rebalance(self, deadline_ms: float) -> Outcome:
        """Commit the positions until that succeeds or the deadline is over. Meanwhile there is no other automatic commit.

        An attempt has the positions of the last poll. Those of an earlier poll could follow a later commit, and take the group back
        (CommitRequestManager.autoCommitSyncBeforeRebalanceWithRetries).
        """
        latest = self._latest = self.positions()
        result = Outcome()

        def done(outcome: Outcome) -> None:
            if self._latest is latest:
                self._latest = None
            if outcome.error is None:
                result.succeed()
            else:
                result.fail(outcome.error)

        self._commit(latest, deadline_ms, retries=True, keeps_epochs=True).then(done)
        return result

    def _commit(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], deadline_ms: float, *, retries: bool, keeps_epochs: bool = False
    ) -> Outcome:
        """Commit what the mapping has when the request is built."""
        if not offsets:
            outcome = Outcome()
            outcome.succeed()
            return outcome
        sent: list[Identity] = []
        names: dict[bytes, str] = {}

        def build() -> Message:
            identity = self.member.identity()
            if identity is None and self._options.uses_consumer_protocol:
                identity = Identity()  # the coordinator accepts this while the group has no member
            if identity is None:
                if self.member.is_rebalancing():
                    raise RebalanceInProgressError(_REBALANCING)
                raise CommitFailedError(_NOT_A_MEMBER)
            sent[:] = [identity]
            ids = self._topic_ids(offsets)
            call.versions = COMMIT_VERSIONS_WITH_IDS if ids else COMMIT_VERSIONS
            names.update((one, name) for name, one in ids.items())
            return self._message(offsets, identity, ids)

        def handle(answer: Message) -> None:
            self._handle_commit(answer, sent[0], names, retries=retries, keeps_epochs=keeps_epochs)

        call = Call(build, COMMIT_VERSIONS, handle, deadline_ms, retries=retries, moved=_MOVED)
        return self._coordinator.call(call)

    def commit_async(self, offsets: Offsets, deadline_ms: float, callback: Callable[[Offsets, Exception | None], object] | None) -> None:
        """Commit offsets once, and put the outcome into `finished`."""
        self._asynchronous += 1
        offsets = dict(offsets)

        def done(outcome: Outcome) -> None:
            self._asynchronous -= 1
            error = outcome.error
            if isinstance(error, KafkaError) and error.retriable:
                error = RetriableCommitFailedError(f"the commit has failed, and a later one may succeed: {error}")
            self.finished.append(Committed(callback, offsets, error))

        self.commit(offsets, deadline_ms, retries=False).then(done)

    @property
    def has_asynchronous(self) -> bool:
        """Whether an asynchronous commit has no outcome yet."""
        return self._asynchronous > 0

    def auto_commit(self, now_ms: float) -> None:
        """Commit the positions if the interval is over (only during `poll`, where all returned records are taken)."""
        if self._latest is not None:
            if positions := self.positions():
                self._latest.clear()
                self._latest.update(positions)
            return
        if now_ms < self._auto_ms or self._auto is not None:
            return
        interval_ms = self._options.auto_commit_ms
        assert interval_ms is not None
        self._auto_ms = now_ms + interval_ms
        offsets = self.positions()
        if not offsets or self.member.identity() is None:
            return
        outcome = self._auto = self.commit(offsets, now_ms + self._options.request_timeout_ms, retries=False)

        def done(_: Outcome) -> None:
            self._auto = None
            if outcome.error is None:
                self.finished.append(Committed(None, offsets, None))
            elif isinstance(outcome.error, KafkaError) and outcome.error.retriable:
                self._auto_ms = min(self._auto_ms, now_ms + self._options.retry_backoff_ms)

        outcome.then(done)

    def restart(self, now_ms: float) -> None:
        """Begin the interval of automatic commits again, after a rebalance."""
        if self._options.auto_commit_ms is not None:
            self._auto_ms = now_ms + self._options.auto_commit_ms

    def wake_ms(self) -> float:
        """Return the time of the next automatic commit."""
        return FOREVER if self._auto is not None or self._latest is not None else self._auto_ms

    def _topic_ids(self, keys: Iterable[TopicPartition]) -> dict[str, bytes]:
        """Return the ids of topics for a request. Empty if one is not known, and with the classic protocol, as in Kafka."""
        if not self._options.uses_consumer_protocol:
            return {}
        found = {key.topic: self._coordinator.topic_id(key.topic) for key in keys}
        return {} if ZERO_UUID in found.values() else found

    def _message(self, offsets: Offsets, identity: Identity, ids: Mapping[str, bytes]) -> Message:
        topics: dict[str, list[OffsetCommitRequestPartition]] = {}
        for key, one in offsets.items():
            epoch = -1 if one.leader_epoch is None else one.leader_epoch
            topics.setdefault(key.topic, []).append(OffsetCommitRequestPartition(key.partition, one.offset, epoch, one.metadata))
        return OffsetCommitRequest(
            group_id=str(self._options.group_id),
            generation_id_or_member_epoch=identity.generation_id,
            member_id=identity.member_id,
            group_instance_id=self._options.instance_id,
            topics=[OffsetCommitRequestTopic(name, ids.get(name, ZERO_UUID), partitions) for name, partitions in topics.items()],
        )

    def _handle_commit(self, answer: Message, sent: Identity, names: Mapping[bytes, str], *, retries: bool, keeps_epochs: bool) -> None:
        assert isinstance(answer, OffsetCommitResponse)
        refused = []
        for topic in answer.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for one in topic.partitions:
                error = by_code(one.error_code)
                if error.name == "NONE":
                    continue
                if error.name == "TOPIC_AUTHORIZATION_FAILED":
                    refused.append(name)
                    continue
                text = f"{name}-{one.partition_index}: {error.words}"
                raise self._commit_error(error.name, text, sent, retries=retries, keeps_epochs=keeps_epochs)
        if refused:
            raise error_named("TOPIC_AUTHORIZATION_FAILED", f"not authorized to read {', '.join(sorted(set(refused)))}")

    def _commit_error(self, name: str, text: str, sent: Identity, *, retries: bool, keeps_epochs: bool) -> KafkaError:
        """Return the error of a commit, after the membership has handled it. With `keeps_epochs`, an old epoch is no outcome."""
        is_current, is_joining = self.member.is_current(sent), self.member.is_joining()
        if name != "FENCED_INSTANCE_ID" or not retries:  # the program learns of a synchronous commit's from the commit, not from a poll
            self.member.commit_failed(name, sent)
        if name == "REBALANCE_IN_PROGRESS":
            return RebalanceInProgressError(_REBALANCING)
        if name == "FENCED_INSTANCE_ID" and is_current:
            return FencedInstanceIdError(f"another consumer has group.instance.id={self._options.instance_id}").marked(fatal=True)
        if name in _NOT_THIS_MEMBER or (name == "STALE_MEMBER_EPOCH" and self._options.uses_consumer_protocol):
            if not is_current and is_joining:
                return RebalanceInProgressError(_REBALANCING)
            if keeps_epochs:
                found = self._with_newer_epoch(error_named(name, text))
                if found.retriable:
                    return found
            is_old = name == "STALE_MEMBER_EPOCH" and not retries
            return error_named(name, text) if is_old else CommitFailedError(_NOT_A_MEMBER)
        if keeps_epochs and name == "UNKNOWN_TOPIC_OR_PARTITION" and self._options.uses_consumer_protocol:
            return CommitFailedError(text)  # a deleted topic must not hold up the rebalance
        is_expected = name in _EXPECTED or (name == "UNKNOWN_TOPIC_ID" and self._options.uses_consumer_protocol)
        return error_named(name, text) if is_expected else _unexpected(name, text)

    # committed offsets

    def fetch(self, keys: Iterable[TopicPartition], deadline_ms: float) -> Outcome:
        """Read the committed offsets. The outcome has an offset or None for each partition. With the consumer protocol, None may also mean
        that the coordinator did not know the topic until the deadline."""
        wanted = list(keys)
        outcome = Outcome()
        if not wanted:
            outcome.succeed({})
            return outcome
        topics: dict[str, list[int]] = {}
        for key in wanted:
            topics.setdefault(key.topic, []).append(key.partition)
        names: dict[bytes, str] = {}

        def build() -> Message:
            ids = self._topic_ids(wanted)
            call.versions = FETCH_VERSIONS_WITH_IDS if ids else FETCH_VERSIONS
            names.update((one, name) for name, one in ids.items())
            entries = [OffsetFetchRequestTopics(name, ids.get(name, ZERO_UUID), partitions) for name, partitions in topics.items()]
            group = OffsetFetchRequestGroup(str(self._options.group_id), topics=entries)
            identity = self.member.identity() if self._options.uses_consumer_protocol else None
            if identity is not None and identity.member_id:
                group.member_id, group.member_epoch = identity
            return OffsetFetchRequest(groups=[group], require_stable=True)

        def handle(answer: Message) -> dict[TopicPartition, OffsetAndMetadata | None]:
            assert isinstance(answer, OffsetFetchResponse)
            (group,) = answer.groups
            if group.error_code:
                error = by_code(group.error_code)
                raise self._with_newer_epoch(error_named(error.name, f"group {self._options.group_id}: {error.words}"))
            committed, unknown = _read_committed(group, names, asks_again=self._options.uses_consumer_protocol)
            found: dict[TopicPartition, OffsetAndMetadata | None] = dict.fromkeys(wanted)
            found |= committed
            if unknown is not None:
                call.partial = found
                raise unknown
            return found

        call = Call(build, FETCH_VERSIONS, handle, deadline_ms, retries=True)
        return self._coordinator.call(call)

    def _with_newer_epoch(self, error: KafkaError) -> KafkaError:
        """Let a request with an old epoch be repeated while the member is in the group."""
        is_old = error.name == "STALE_MEMBER_EPOCH" and self._options.uses_consumer_protocol
        if is_old and self.member.identity() is not None:
            return error_named("COORDINATOR_LOAD_IN_PROGRESS", str(error))
        return error

    def initialize(self, now_ms: float) -> dict[TopicPartition, OffsetAndMetadata | None] | None:
        """Return the committed offsets of the partitions that have no position yet, or None before they are known. Raises KafkaError.

        After default.api.timeout.ms, partitions of topics that the coordinator does not know have none, and no longer hold up the others.
        """
        wanted = frozenset(self._subscriptions.initializing())
        identity = self.member.identity()
        if self._initial is not None and self._initial[:2] != (wanted, identity):
            self._coordinator.withdraw([self._initial[2]])
            self._initial = None
        if self._initial is None:
            if not wanted:
                return {}
            self._initial = (wanted, identity, self.fetch(sorted(wanted), now_ms + self._options.api_timeout_ms))
        outcome = self._initial[2]
        if not outcome.is_done:
            return None
        self._initial = None
        if isinstance(outcome.error, KafkaError) and outcome.error.name == "REQUEST_TIMED_OUT":
            return None  # the next turn asks again
        found: dict[TopicPartition, Any] = outcome.result()
        return found


def _unexpected(name: str, text: str) -> KafkaError:
    """Return the error for a code that the coordinator should not send here. It keeps the name of a code that allows no retry."""
    return error_named("UNKNOWN_SERVER_ERROR", f"{name}, {text}") if by_name(name).retriable else error_named(name, text)


def _read_committed(
    group: OffsetFetchResponseGroup, names: Mapping[bytes, str], *, asks_again: bool
) -> tuple[dict[TopicPartition, OffsetAndMetadata], KafkaError | None]:
    """Return the offsets of an answer, and the error of an unknown topic. With `asks_again`, it may be known later. Raises KafkaError."""
    found: dict[TopicPartition, OffsetAndMetadata] = {}
    refused = []
    unstable: list[str] = []
    unknown: list[KafkaError] = []
    for topic in group.topics:
        name = topic.name or names.get(topic.topic_id, "")
        for one in topic.partitions:
            error = by_code(one.error_code)
            if error.name == "TOPIC_AUTHORIZATION_FAILED":
                refused.append(name)
            elif error.name == "UNKNOWN_TOPIC_OR_PARTITION" and not asks_again:
                raise CommitFailedError(f"{name}-{one.partition_index}: {error.words}")
            elif error.name == "UNSTABLE_OFFSET_COMMIT":
                unstable.append(f"{name}-{one.partition_index}")
            elif error.name in ("UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC_ID") and asks_again:
                unknown.append(error_named(error.name, f"{name}-{one.partition_index}: {error.words}"))
            elif error.name != "NONE":
                raise _unexpected(error.name, f"{name}-{one.partition_index}: {error.words}")
            elif one.committed_offset >= 0:
                epoch = one.committed_leader_epoch if one.committed_leader_epoch >= 0 else None
                key = TopicPartition(name, one.partition_index)
                found[key] = OffsetAndMetadata(one.committed_offset, one.metadata or "", epoch)
    if refused:
        raise error_named("TOPIC_AUTHORIZATION_FAILED", f"not authorized to read {', '.join(sorted(set(refused)))}")
    if unstable:
        raise error_named("UNSTABLE_OFFSET_COMMIT", f"{', '.join(unstable)}: {by_name('UNSTABLE_OFFSET_COMMIT').words}")
    return found, unknown[0] if unknown else None
