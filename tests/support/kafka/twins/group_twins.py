"""The GroupCoordinatorShard of kops and that of Kafka, with one clock and one log.

Each request goes to both, and all results must be the same.

The twins are the runtime of both shards: they replay records, keep appends until `commit`, let writes fail, and let timers expire.
"""

from __future__ import annotations

import base64
import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID

from py4j.protocol import Py4JJavaError

from kops.coordinators.groups.config import GroupCoordinatorConfig
from kops.coordinators.groups.context import RequestContext
from kops.coordinators.groups.shard.shard import GroupCoordinatorShard
from kops.coordinators.runtime.promise import Promise
from kops.coordinators.runtime.records import CoordinatorRecord, read_record
from kops.coordinators.runtime.result import CoordinatorResult
from kops.errors import ApiError, KopsError
from kops.protocol.api_keys import by_key
from kops.protocol.declaration import Message
from kops.protocol.errors import by_exception
from kops.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kops.protocol.messages.heartbeat_request import HeartbeatRequest
from kops.protocol.messages.heartbeat_response import HeartbeatResponse
from kops.protocol.registry import GROUP_RECORDS
from kops.timeline import Timeline
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_groups import JavaGroups
from tests.support.parts.groups.coordinator_images import Image
from tests.support.parts.manual_timer import ManualTimer

START_MS = 1_700_000_000_000
CLIENT_HOST = "/127.0.0.1"
NO_ID = "00000000-0000-4000-8000-000000000000"
"""The id of a member that Kafka's shard did not accept."""
IGNORED_TIMERS = {"group-size-counter"}
"""Timers of Kafka that only count."""


@dataclass
class Waiting:
    """A response that both hold back."""

    request: Message
    version: int
    ours: Promise[Any]
    theirs: Any


@dataclass
class Append:
    """Records that are written and not committed yet."""

    end_offset: int
    ours: Promise[None] | None
    theirs: Any


@dataclass
class Answer:
    """The answer of both: an error's name, a response, or neither if the response is held back; and the records of kops."""

    error: str | None
    response: Any
    records: Sequence[CoordinatorRecord]


class NoExecutor:
    """An executor that notes tasks by key."""

    def __init__(self) -> None:
        self.tasks: dict[str, tuple[Any, Any]] = {}

    def schedule(self, key: str, task: Any, operation: Any) -> bool:
        """Note a task. The test runs it."""
        return self.tasks.setdefault(key, (task, operation)) == (task, operation)

    def is_scheduled(self, key: str) -> bool:
        """Return whether a task with this key is noted."""
        return key in self.tasks

    def cancel(self, key: str) -> None:
        """Remove a task."""
        self.tasks.pop(key, None)


class GroupTwins:
    """The two shards. `fail_write` is the name of the error with which the next write fails."""

    def __init__(
        self,
        java: JavaCoordinators,
        settings: Mapping[str, Any],
        topics: Mapping[str, tuple[bytes, int]],
        log: Sequence[tuple[CoordinatorRecord | None, int, int, bool]] = (),
        now_ms: int = START_MS,
    ) -> None:
        self.java = java
        self.settings = settings
        self.topics = topics
        self.clock = ManualClock(java.oracle, now_ms)
        self.theirs = JavaGroups(java, self.clock, settings)
        self.timeline = Timeline()
        self.timer = ManualTimer(lambda: self.clock.now_ms)
        self.executor = NoExecutor()
        self.new_ids: deque[str] = deque()
        config = GroupCoordinatorConfig.from_values(settings)
        self.ours = GroupCoordinatorShard(
            self.timeline, self.timer, self.executor, lambda: self.clock.now_ms, self._new_id, config, lambda _group_id: None
        )
        self.offset = 0
        self.committed_offset = 0
        self.known_ids: set[str] = set()
        self.waiting: list[Waiting] = []
        self.answered: list[tuple[Message, Any]] = []
        self.appends: deque[Append] = deque()
        self.log: list[tuple[CoordinatorRecord | None, int, int, bool]] = []
        self.fail_write: str | None = None
        self.heartbeat_count = self.kept_count = 0
        for record, producer_id, producer_epoch, is_commit in log:
            if record is None:
                self.end_transaction(producer_id, producer_epoch, is_commit=is_commit)
            else:
                again = read_record(record.key_bytes(), record.value_bytes(), GROUP_RECORDS)
                self._replay_both([again], [self.their_record(record)], producer_id, producer_epoch)
        self._snapshot()
        self.theirs.shard.onLoaded(java.image(topics))
        self.ours.on_loaded(Image(topics))
        self.check_timers()
        self.commit()

    def reloaded(self, settings: Mapping[str, Any] | None = None) -> Self:
        """Return new twins that have replayed the same log, with other settings if given."""
        again = type(self)(self.java, settings or self.settings, self.topics, self.log, self.clock.now_ms)
        again.known_ids = self.known_ids
        again.heartbeat_count, again.kept_count = self.heartbeat_count, self.kept_count
        return again

    def ask(
        self,
        name: str,
        request: Message,
        version: int,
        *,
        client_id: str = "client",
        holds_back: bool = False,
        producer: tuple[int, int] = (-1, -1),
        written_as: int | None = None,
        adjust: Callable[[Any], object] = lambda _request: None,
    ) -> Answer:
        """Send a request to the method `name` of both shards. With `holds_back` the response may come later, in `answered`.

        Kafka's request is read from the bytes of the latest version, or of `written_as`. `adjust` sets the fields that this version lacks.
        """
        assert request.API_KEY is not None
        api = by_key(request.API_KEY).constant
        ours_context = RequestContext(version, client_id, CLIENT_HOST, request.API_KEY)
        real = self.java.message(request, request.VERSIONS[-1] if written_as is None else written_as)
        adjust(real)
        theirs_arguments = [self.theirs.context(api, version, client_id), real]
        ours_arguments: list[Any] = [ours_context, request]
        if holds_back:
            waiting = Waiting(request, version, Promise(), self.theirs.future())
            self.waiting.append(waiting)
            theirs_arguments.append(waiting.theirs)
            ours_arguments.append(waiting.ours)
        method = getattr(self.theirs.shard, _camel(name))
        return self.operate(
            lambda: method(*theirs_arguments),
            lambda: self._handle(name, ours_arguments),
            group_id=getattr(request, "group_id", None),
            producer=producer,
        )

    def _handle(self, name: str, arguments: Sequence[Any]) -> CoordinatorResult[Any]:
        """Call the method of our shard. Every other heartbeat is handled as the broker handles one that changes nothing, if it is one."""
        context, request = arguments[:2]
        if isinstance(request, HeartbeatRequest | ConsumerGroupHeartbeatRequest):
            self.heartbeat_count += 1
            if self.heartbeat_count % 2:
                response = self._kept(context, request)
                if response is not None:
                    self.kept_count += 1
                    return CoordinatorResult((), response)
        result: CoordinatorResult[Any] = getattr(self.ours, name)(*arguments)
        return result

    def _kept(self, context: RequestContext, request: HeartbeatRequest | ConsumerGroupHeartbeatRequest) -> Message | None:
        if isinstance(request, HeartbeatRequest):
            return HeartbeatResponse() if self.ours.keep_classic_member(request) else None
        return self.ours.keep_consumer_member(context, request)

    def operate(
        self,
        theirs: Callable[[], Any],
        ours: Callable[[], CoordinatorResult[Any]],
        *,
        group_id: str | None = None,
        producer: tuple[int, int] = (-1, -1),
        response_bytes: Callable[[Any], bytes] | None = None,
    ) -> Answer:
        """Run the same operation on both, as the runtime runs write operations."""
        self.timeline.offset = self.offset
        result, error, text = None, None, ""
        try:
            result = theirs()
        except Py4JJavaError as caught:
            thrown = caught.java_exception
            error, text = by_exception(thrown.getClass().getSimpleName()).name, thrown.getMessage()
        if group_id is not None:
            self._find_new_ids(group_id, result, text)
        try:
            own = ours()
        except ApiError as raised:
            self.new_ids.clear()
            assert raised.name == error
            if error != "UNKNOWN_SERVER_ERROR":  # an exception of Java has the text of Java, or none
                assert (raised.message or text) == text
            self._check()
            return Answer(error, None, ())
        assert error is None, (error, text)
        assert not self.new_ids, self.new_ids
        self._check_response(own, result, response_bytes)
        self._write(own, result, producer)
        self._check()
        return Answer(None, own.response, own.records)

    def advance(self, delta_ms: int) -> None:
        """Let time pass. The timers expire one after the other."""
        end_ms = self.clock.now_ms + delta_ms
        while (due := self.timer.next_due()) is not None and due[0] <= end_ms:
            self.clock.now_ms = max(self.clock.now_ms, due[0])
            theirs, ours = self.theirs.timer.pop(due[1]), self.timer.pop(due[1])
            self.operate(theirs.generateRecords, ours)
        self.clock.now_ms = end_ms
        self.theirs.timer.entries.pop("group-size-counter", None)

    def commit(self, end_offset: int | None = None) -> None:
        """Commit the log up to `end_offset`, or up to its end. The writes that wait for it complete."""
        end_offset = self.offset if end_offset is None else end_offset
        self.committed_offset = end_offset
        self.timeline.forget_up_to(end_offset - 1)
        self.theirs.registry.deleteSnapshotsUpTo(self.java.long(end_offset))
        while self.appends and self.appends[0].end_offset <= end_offset:
            append = self.appends.popleft()
            self.timeline.offset = self.offset
            if append.theirs is not None:
                append.theirs.complete(None)
            if append.ours is not None:
                append.ours.complete(None)
            self._check()

    def time_out(self, error: str) -> None:
        """Let the oldest append time out before it is committed. Its records stay."""
        if self.appends:
            append = self.appends.popleft()
            self._fail(append.ours, append.theirs, error)
            self._check()

    def end_transaction(self, producer_id: int, producer_epoch: int, *, is_commit: bool) -> None:
        """Write a marker that ends a transaction."""
        self.timeline.offset = self.offset
        self.ours.replay_end_transaction_marker(producer_id, producer_epoch, is_commit)
        results = self.java.oracle.java_class(f"{KAFKA}common.requests.TransactionResult")
        marker = results.COMMIT if is_commit else results.ABORT
        self.theirs.shard.replayEndTransactionMarker(self.java.long(producer_id), self.java.short(producer_epoch), marker)
        self.log.append((None, producer_id, producer_epoch, is_commit))
        self.offset += 1
        self._snapshot()
        self.appends.append(Append(self.offset, None, None))

    def unload(self) -> None:
        """Unload the partition, as if another broker led it."""
        self.timeline.offset = self.offset
        self.theirs.shard.onUnloaded()
        self.ours.on_unloaded()
        self._check()

    def their_record(self, record: CoordinatorRecord) -> Any:
        """Return a record of kops as Kafka's object."""
        value = record.value_bytes()
        wrap = self.java.wrap
        return self.theirs.serde.deserialize(wrap(record.key_bytes()), None if value is None else wrap(value))

    def compare_messages(self, ours: Message, theirs: Any, *, unordered: str | None = None) -> None:
        """Compare two responses of the latest version. The list `unordered` may have any order."""
        version = ours.VERSIONS[-1]
        if type(ours).__name__ == "OffsetCommitResponse":  # the latest version has no names
            assert ours.encode(version - 1) == self.java.message_bytes(theirs, version - 1)
        found = self.java.message_bytes(theirs, version)
        if unordered is None:
            assert ours.encode(version) == found
        else:
            real = type(ours).decode(found, version)
            assert sorted(map(repr, getattr(ours, unordered))) == sorted(map(repr, getattr(real, unordered)))

    def check_timers(self) -> None:
        """Check that both have the same timers."""
        self.theirs.collect()
        real = {key: due for key, due in self.theirs.timer.dues().items() if key not in IGNORED_TIMERS}
        assert self.timer.dues() == real

    def _new_id(self) -> str:
        return self.new_ids.popleft() if self.new_ids else NO_ID

    def _check(self) -> None:
        self.check_timers()
        self._check_waiting()

    def _find_new_ids(self, group_id: str, result: Any, text: str) -> None:
        """Find the ids that Kafka has drawn, so that kops draws the same ones. An error or a record may contain one."""
        found = self.theirs.member_ids(group_id) | set(re.findall(r"(?<![\w-])[\w-]{22}(?![\w-])", text or ""))
        if result is not None:
            keys = (read_record(key, None, GROUP_RECORDS).key for key, _ in self.java.records(result.records(), self.theirs.serde))
            found |= {member_id for key in keys if (member_id := getattr(key, "member_id", ""))}
        if self.waiting and self.waiting[-1].theirs.isDone():
            response = self.waiting[-1].theirs.getNow(None)
            if hasattr(response, "memberId") and type(self.waiting[-1].request).__name__ == "JoinGroupRequest":
                found.add(response.memberId())
        for member_id in found - self.known_ids - {""}:
            self.known_ids.add(member_id)
            if len(member_id) > 36:
                self.new_ids.append(member_id[-36:])
            elif len(member_id) == 22:  # Kafka's own text of a UUID
                self.new_ids.append(str(UUID(bytes=base64.urlsafe_b64decode(member_id + "=="))))

    def _check_response(self, ours: CoordinatorResult[Any], theirs: Any, response_bytes: Callable[[Any], bytes] | None) -> None:
        response = theirs.response()
        assert (ours.response is None) == (response is None)
        if isinstance(ours.response, Message):
            self.compare_messages(ours.response, response)
        elif ours.response is not None and response_bytes is not None:
            assert response_bytes(ours.response) == response_bytes(response)

    def _write(self, ours: CoordinatorResult[Any], theirs: Any, producer: tuple[int, int]) -> None:
        """Write the records of both, unless the write fails."""
        their_records = list(theirs.records().toArray())
        records = list(ours.records)
        found = self.java.records(theirs.records(), self.theirs.serde)
        own = [(record.key_bytes(), record.value_bytes()) for record in records]
        if own != found:
            assert sorted(own, key=repr) == sorted(found, key=repr), (own, found)
            order = {pair: index for index, pair in enumerate(found)}
            records.sort(key=lambda record: order[record.key_bytes(), record.value_bytes()])
        assert ours.replay_records == theirs.replayRecords()
        assert (ours.append_promise is None) == (theirs.appendFuture() is None)
        assert ours.is_atomic == theirs.isAtomic()
        if records and self.fail_write is not None:
            error, self.fail_write = self.fail_write, None
            self.timeline.revert_to(self.offset - 1)
            self.theirs.registry.revertToSnapshot(self.java.long(self.offset))
            self._fail(ours.append_promise, theirs.appendFuture(), error)
            return
        if ours.replay_records:
            self._replay_both(records, their_records, *producer)
        else:
            self._log(records, *producer)
        if records:
            self._snapshot()
        if records or ours.append_promise is not None:
            self.appends.append(Append(self.offset, ours.append_promise, theirs.appendFuture()))
        if not records and not any(append.end_offset > self.committed_offset for append in self.appends):
            self.commit()

    def _replay_both(self, ours: list[CoordinatorRecord], theirs: list[Any], producer_id: int, producer_epoch: int) -> None:
        producer = self.java.long(producer_id), self.java.short(producer_epoch)
        for own, real in zip(ours, theirs, strict=True):
            self.timeline.offset = self.offset
            self.ours.replay(self.offset, producer_id, producer_epoch, own)
            self.theirs.shard.replay(self.java.long(self.offset), *producer, real)
            self._log([own], producer_id, producer_epoch)

    def _log(self, records: Sequence[CoordinatorRecord], producer_id: int, producer_epoch: int) -> None:
        self.log += [(record, producer_id, producer_epoch, False) for record in records]
        self.offset += len(records)

    def _snapshot(self) -> None:
        self.theirs.registry.idempotentCreateSnapshot(self.java.long(self.offset))

    def _fail(self, ours: Promise[None] | None, theirs: Any, error: str) -> None:
        self.timeline.offset = self.offset
        if theirs is not None:
            errors = self.java.oracle.java_class(f"{KAFKA}common.protocol.Errors")
            theirs.completeExceptionally(errors.valueOf(error).exception())
        if ours is not None:
            failure: KopsError = ApiError(error)
            ours.fail(failure)

    def _check_waiting(self) -> None:
        """Check that both have answered the same requests with the same responses."""
        still = []
        for waiting in self.waiting:
            assert waiting.ours.is_done == waiting.theirs.isDone(), (waiting.request, waiting.ours.is_done)
            if not waiting.ours.is_done:
                still.append(waiting)
                continue
            response = waiting.ours.result()
            real = waiting.theirs.getNow(None)
            if hasattr(response, "leader") and real.leader() is None:
                real.setLeader("")
            self.compare_messages(response, real)
            self.answered.append((waiting.request, response))
        self.waiting = still


def _camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(other.capitalize() for other in others)
