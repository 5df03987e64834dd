"""A consumer that is a member of a group: it reads the partitions that the group assigns to it, from the committed offsets.

Source: Kafka's ClassicKafkaConsumer and ConsumerCoordinator. One difference is intended: it commits the records that the reader has
finished (`done`), not those that were fetched. There is no thread, so the session ends if `poll` is not called for `session.timeout.ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kops.client.client import WAITING_MS, Client
from kops.client.consumer.core.collecting import Fetched
from kops.client.consumer.faces.batches import BatchConsumer
from kops.client.groups.assignors import Assignor, Racks, Subscription
from kops.client.groups.committed import (
    COMMIT_VERSIONS,
    FETCH_VERSIONS,
    commit_outcomes,
    commit_request,
    fetch_request,
    fetched_offsets,
    find_coordinator,
)
from kops.client.groups.membership import Divide, FindCoordinator, GiveUp, GroupSettings, Membership, Prepare, Send, State, Take
from kops.errors import ApiError, KopsError, UnreachableError
from kops.protocol.errors import by_name

if TYPE_CHECKING:
    from kops.client.node import Node
    from kops.protocol.declaration import Message
    from kops.records.log_offsets import TopicPartition

_LEAVE_MS: Final = 5000  # the time in which a closing member tries to commit and to leave
_FIND_MS: Final = 5000
_COORDINATOR_MOVED: Final = ("NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "NETWORK_EXCEPTION", "REQUEST_TIMED_OUT")


class GroupConsumer:
    """A member of a group. Only one thread may use it.

    `start_offsets(keys)` returns where to begin in partitions without a committed offset. `settle()` is called before each commit: the
    reader must then complete the records that it has reported (`done`). `on_change(taken, given)` reports assigned and revoked partitions.
    """

    def __init__(
        self,
        client: Client,
        settings: GroupSettings,
        assignors: Sequence[Assignor],
        *,
        start_offsets: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]],
        commit_interval_ms: int | None = 5000,
        settle: Callable[[], object] = lambda: None,
        on_change: Callable[[Sequence[TopicPartition], Sequence[TopicPartition]], object] = lambda taken, given: None,
        on_reset: Callable[[TopicPartition, int], object] = lambda key, offset: None,
        on_trouble: Callable[[str], object] = lambda text: None,
    ) -> None:
        self.client = client
        self.settings = settings
        self.membership = Membership(settings, assignors, client.backoff.delay_ms)
        self._consumer = BatchConsumer(client, {}, on_reset=on_reset)
        self._start_offsets = start_offsets
        self._interval_ms = commit_interval_ms
        self._settle = settle
        self._on_change = on_change
        self._on_trouble = on_trouble
        self._coordinator: Node | None = None
        self._done: dict[TopicPartition, int] = {}
        self._given: dict[TopicPartition, int] = {}  # the offset after the last record passed to the reader
        self._committed: dict[TopicPartition, int] = {}
        self._commit_ms = client.now_ms() + (commit_interval_ms or 0)
        self._is_committing = False
        self._waits_since_ms = client.now_ms()
        self._counts: dict[str, int] = {}  # partition counts of the topics that this member assigned as leader
        self._counts_ms = 0.0

    @property
    def positions(self) -> dict[TopicPartition, int]:
        """The offset of the next record of each partition that this member reads."""
        return self._consumer.positions

    @property
    def is_assigned(self) -> bool:
        """Whether the group has assigned partitions to this member, possibly none."""
        return self.membership.state is State.STABLE and set(self._consumer.positions) == set(self.membership.owned)

    def done(self, key: TopicPartition, next_offset: int) -> None:
        """Report that the reader has finished all records before this offset."""
        self._done[key] = next_offset

    def poll(self, timeout_ms: float) -> Iterator[Fetched]:
        """Return the fetched batches, or wait up to `timeout_ms` for some. Meanwhile, take part in the group.

        Raises ApiError, UnreachableError, NotFoundError (a topic was deleted), DecodeError (damaged records).
        """
        deadline_ms = self.client.now_ms() + timeout_ms
        while True:
            self._drive()
            now_ms = self.client.now_ms()
            self._commit_in_time(now_ms)
            wait_ms = max(min(deadline_ms, self.membership.wake_ms(), now_ms + 100) - now_ms, 0)
            for fetched in self._consumer.poll(wait_ms):
                self._given[fetched.key] = fetched.records[-1].offset + 1
                yield fetched
                deadline_ms = 0
                self.client.network.poll(0)
                if self._is_due(self.client.now_ms()):
                    break
            if self.client.now_ms() >= deadline_ms:
                return

    def _is_due(self, now_ms: float) -> bool:
        """Whether the membership has a step to carry out now."""
        return now_ms >= self.membership.wake_ms() or self.membership.state is not State.STABLE

    def close(self, *, commits: bool = True) -> None:
        """Commit and leave. Failures are passed to `on_trouble`, not raised."""
        try:
            if commits:
                self._commit_now(min(_LEAVE_MS, self.client.settings.default_api_timeout_ms))
            message = self.membership.leave()
            if message is not None:
                self._ask(message, range(3, 6), _LEAVE_MS)
        except KopsError as error:
            self._on_trouble(f"group {self.settings.group_id}: {error}")

    # the group

    def _drive(self) -> None:
        """Carry out the next step of the membership."""
        while (event := self.membership.next_event(self.client.now_ms())) is not None:
            if isinstance(event, Send):
                self._send(event)
            elif isinstance(event, FindCoordinator):
                self._find()
            elif isinstance(event, Prepare):
                self._stop(event.revoked, is_lost=event.is_lost)
                self.membership.prepared(event.revoked)
            elif isinstance(event, Divide):
                self.membership.divide(event.members, self._look_up(event.members))
            elif isinstance(event, GiveUp):
                self._stop(event.keys, is_lost=False)
            else:
                assert isinstance(event, Take)
                self._take(event.keys)
        now_ms = self.client.now_ms()
        if self.membership.state is State.STABLE:
            self._waits_since_ms = now_ms
            self._watch_topics(now_ms)
        elif self.membership.why and now_ms - self._waits_since_ms >= WAITING_MS:
            self.client.tell(f"group {self.settings.group_id}: {self.membership.why}")

    def _send(self, event: Send) -> None:
        assert self._coordinator is not None
        message = event.message
        self.client.network.send(
            self._coordinator,
            message,
            lambda answer: self.membership.receive(message, answer, self.client.now_ms()),
            timeout_ms=event.timeout_ms,
        )

    def _find(self) -> None:
        try:
            self._coordinator = find_coordinator(self.client, self.settings.group_id, timeout_ms=_FIND_MS)
        except UnreachableError as error:
            if not self.client.network.has_answer:
                raise
            self.membership.coordinator_not_found(str(error), self.client.now_ms())
        else:
            self.membership.coordinator_found()

    def _stop(self, keys: Sequence[TopicPartition], *, is_lost: bool) -> None:
        """Commit, unless the partitions are lost, and stop reading them."""
        if is_lost and keys:
            self._on_trouble(f"group {self.settings.group_id} continued without this member: records since the last commit are read again")
        elif not is_lost:
            self._commit_quietly()
        for key in keys:
            self._consumer.drop(key)
            for offsets in (self._done, self._given, self._committed):
                offsets.pop(key, None)
        if keys:
            self._on_change((), keys)

    def _take(self, keys: Sequence[TopicPartition]) -> None:
        """Start reading these partitions from their committed offsets."""
        found = self._fetch_committed(keys) if keys else {}
        missing = [key for key in keys if key not in found]
        starts = self._start_offsets(missing) if missing else {}
        for key in keys:
            self._consumer.add(key, found.get(key, starts.get(key, 0)))
            if key in found:
                self._committed[key] = found[key]
        self._on_change(keys, ())

    def _look_up(self, members: Mapping[str, Subscription]) -> dict[str, Racks]:
        """Return the racks of all partitions of the topics to which members subscribe."""
        wanted = sorted({topic for member in members.values() for topic in member.topics})
        response = self.client.fetch_metadata(wanted)
        racks = {node.id: node.rack for node in self.client.metadata.nodes.values()}
        found: dict[str, Racks] = {}
        for topic in response.topics:
            partitions = sorted(topic.partitions, key=lambda one: one.partition_index)
            if topic.error_code == 0 and topic.name is not None:
                found[topic.name] = [frozenset(rack for node in one.replica_nodes if (rack := racks.get(node))) for one in partitions]
        self._counts = {topic: len(partitions) for topic, partitions in found.items()}
        self._counts_ms = self.client.now_ms() + self.client.settings.metadata_max_age_ms
        return found

    def _watch_topics(self, now_ms: float) -> None:
        """Begin a rebalance if this member is the leader and topics have new partitions."""
        if not self.membership.is_leader or now_ms < self._counts_ms:
            return
        self._counts_ms = now_ms + self.client.settings.metadata_max_age_ms
        response = self.client.fetch_metadata(sorted(self._counts))
        counts = {topic.name: len(topic.partitions) for topic in response.topics if topic.error_code == 0}
        if counts != self._counts:
            self.membership.rejoin("cached metadata has changed")

    # committed offsets

    def _fetch_committed(self, keys: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        from kops.protocol.messages import OffsetFetchResponse

        answer = self._ask(fetch_request(self.settings.group_id, keys), FETCH_VERSIONS, self.client.settings.default_api_timeout_ms)
        assert isinstance(answer, OffsetFetchResponse)
        return fetched_offsets(answer)

    def _news(self) -> dict[TopicPartition, int]:
        """Return the finished offsets that are not committed yet. As in Kafka, they include transaction markers."""
        found = {}
        for key, position in self._consumer.positions.items():
            done = self._done.get(key)
            offset = position if done == self._given.get(key) else done
            if offset is not None and offset != self._committed.get(key):
                found[key] = offset
        return found

    def _commit_in_time(self, now_ms: float) -> None:
        """Commit periodically, without waiting for the answer."""
        if self._interval_ms is None or now_ms < self._commit_ms or self._is_committing or self.membership.state is not State.STABLE:
            return
        self._commit_ms = now_ms + self._interval_ms
        self._settle()
        offsets = self._news()
        if not offsets or self._coordinator is None:
            return
        generation_id = self.membership.generation_id
        self._is_committing = True

        def came(answer: Message | ApiError) -> None:
            self._is_committing = False
            error = self._took_commit(answer, offsets, generation_id)
            if error is not None and not by_name(error.name).retriable:
                self._on_trouble(f"group {self.settings.group_id}: offsets were not committed: {error}")

        self.client.network.send(self._coordinator, self._commit(offsets), came, versions=COMMIT_VERSIONS)

    def _commit(self, offsets: Mapping[TopicPartition, int]) -> Message:
        membership = self.membership
        return commit_request(
            self.settings.group_id,
            offsets,
            generation_id=membership.generation_id,
            member_id=membership.member_id,
            instance_id=self.settings.instance_id,
        )

    def _took_commit(self, answer: Message | ApiError, offsets: Mapping[TopicPartition, int], generation_id: int) -> ApiError | None:
        """Handle the answer to a commit. Returns the first error."""
        from kops.protocol.messages import OffsetCommitResponse

        if isinstance(answer, OffsetCommitResponse):
            outcomes = commit_outcomes(answer)
        else:
            assert isinstance(answer, ApiError)
            outcomes = dict.fromkeys(offsets, answer)
        for key, error in outcomes.items():
            if error is None:
                self._committed[key] = offsets[key]
        first = next((error for error in outcomes.values() if error is not None), None)
        if first is not None:
            self.membership.commit_failed(first.name, generation_id, self.client.now_ms())
        return first

    def _commit_quietly(self) -> None:
        """Commit before a rebalance. Failures are reported; the next owner reads those records again."""
        if self._interval_ms is None:
            return
        try:
            self._commit_now(min(_LEAVE_MS, self.settings.rebalance_timeout_ms))
        except KopsError as error:
            self._on_trouble(f"group {self.settings.group_id}: {error}")

    def _commit_now(self, timeout_ms: float) -> None:
        """Commit and wait for the answer. Raises ApiError, UnreachableError."""
        if not self.membership.member_id:
            return
        self._settle()
        offsets = self._news()
        if offsets:
            generation_id = self.membership.generation_id
            answer = self._ask(self._commit(offsets), COMMIT_VERSIONS, timeout_ms)
            error = self._took_commit(answer, offsets, generation_id)
            if error is not None:
                raise ApiError(error.name, f"offsets were not committed: {error}")

    # requests

    def _ask(self, message: Message, versions: range, timeout_ms: float) -> Message:
        """Send a request to the coordinator. Repeat it if the coordinator has moved or is loading. Raises ApiError, UnreachableError."""
        deadline_ms = self.client.now_ms() + timeout_ms
        tries = 0
        while True:
            answer = self._ask_once(message, versions, deadline_ms)
            error = _error_in(answer)
            if error is None or not by_name(error.name).retriable:
                if isinstance(answer, ApiError):
                    raise answer
                return answer
            if self.client.now_ms() >= deadline_ms:
                raise UnreachableError(f"no answer in time from the coordinator of group {self.settings.group_id}; last: {error}")
            self._pause(self.client.backoff.delay_ms(tries))
            tries += 1
            if error.name in _COORDINATOR_MOVED:
                left_ms = max(int(deadline_ms - self.client.now_ms()), 1)
                self._coordinator = find_coordinator(self.client, self.settings.group_id, timeout_ms=left_ms)

    def _ask_once(self, message: Message, versions: range, deadline_ms: float) -> Message | ApiError:
        answers: list[Message | ApiError] = []
        assert self._coordinator is not None
        left_ms = max(min(deadline_ms - self.client.now_ms(), self.client.settings.request_timeout_ms), 1)
        self.client.network.send(self._coordinator, message, answers.append, timeout_ms=left_ms, versions=versions)
        while not answers:
            self.client.turn(100)
        return answers[0]

    def _pause(self, pause_ms: float) -> None:
        until_ms = self.client.now_ms() + pause_ms
        while (left_ms := until_ms - self.client.now_ms()) > 0:
            self.client.turn(left_ms)


def _error_in(answer: Message | ApiError) -> ApiError | None:
    """Return the first error in an answer of the coordinator."""
    from kops.protocol.messages import LeaveGroupResponse, OffsetCommitResponse, OffsetFetchResponse

    if isinstance(answer, ApiError):
        return answer
    if isinstance(answer, OffsetFetchResponse):
        try:
            fetched_offsets(answer)
        except ApiError as error:
            return error
    elif isinstance(answer, OffsetCommitResponse):
        return next((error for error in commit_outcomes(answer).values() if error is not None), None)
    elif isinstance(answer, LeaveGroupResponse) and answer.error_code:
        from kops.client.topics import error_of

        return error_of(answer.error_code)
    return None
