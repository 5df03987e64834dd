"""The requests of a share consumer beside Kafka's ShareConsumeRequestManager and ShareSessionHandler: random acknowledgements, commits,
leaders, times and answers with every error code. Both send the same requests at the same time, and report the same outcomes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
from py4j.java_gateway import get_field

from kops.client.share.core.acknowledgements import AcknowledgementMap, Acknowledgements, NodeAcknowledgements, TopicIdPartition
from kops.client.share.core.commits import Commit, Completed
from kops.client.share.core.fetched import FetchBuffer
from kops.client.share.core.metadata import ShareMetadata
from kops.client.share.core.options import ShareOptions
from kops.client.share.core.requesting import ShareRequests
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    MetadataResponse,
    ShareAcknowledgeRequest,
    ShareAcknowledgeResponse,
    ShareFetchRequest,
    ShareFetchResponse,
)
from kops.protocol.messages import share_acknowledge_response as acknowledging
from kops.protocol.messages import share_fetch_response as fetching
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.records.log_offsets import TopicPartition
from tests.support.kafka.manual_jvm import named
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators
from tests.support.kafka.twins.java_members import TimerClock

NOW_MS = 1_700_000_000_000
VERSION = 2
INTERNALS = "clients.consumer.internals."
IDS = {"a": bytes([7] * 16), "b": bytes([9] * 16)}
PARTS = [TopicIdPartition(IDS[topic], partition, topic) for topic, count in (("a", 2), ("b", 1)) for partition in range(count)]
CODES = [one.code for one in errors.ERRORS]
MEMBER = "AAAAAAAAAAAAAAAAAAAAAQ"
Shown = tuple[Any, ...]


class Sent(NamedTuple):
    """A request of both: ours, and Kafka's UnsentRequest."""

    node_id: int
    message: Message
    answered: Any
    theirs: Any


class Twins:
    """Both consumers, with the same events."""

    def __init__(self, oracle: Oracle, rng: random.Random, mode: str) -> None:
        self.oracle = oracle
        self.rng = rng
        self.java = JavaCoordinators(oracle)
        self.clock = TimerClock(self.java, NOW_MS)
        self.leaders = dict.fromkeys(PARTS, (1, 0))
        self.nodes = {1, 2}
        self.sent: list[Sent] = []
        self.commits: list[tuple[Commit, Any]] = []
        self.close_future: Any = None
        self.seen: Counter[str] = Counter()
        settings = {"bootstrap.servers": "x:1", "group.id": "g", "share.acquire.mode": mode, "retry.backoff.max.ms": 100}
        options = ShareOptions.of(settings)
        self.metadata = ShareMetadata([("x", 1)], options, rng.random)
        self.metadata.subscribe(("a", "b"))
        self.buffer = FetchBuffer(self.metadata.want)
        self.ours = ShareRequests(options.limits, self.metadata, self.buffer, lambda attempts: 100.0)
        self.ours.member_id, self.ours.has_callback = MEMBER, True
        self._make_theirs(options, mode)
        self.new_metadata()

    def _make_theirs(self, options: ShareOptions, mode: str) -> None:
        make, jvm = self.java.make, self.oracle.jvm
        log = make("common.utils.LogContext")
        reset = self.oracle.java_class(f"{KAFKA}{INTERNALS}AutoOffsetResetStrategy").LATEST
        self.subscriptions = make(f"{INTERNALS}SubscriptionState", log, reset)
        self.subscriptions.subscribeToShareGroup(jvm.java.util.Set.of("a", "b"))
        listeners = make("common.internals.ClusterResourceListeners")
        times = [self.java.long(number) for number in (100, 100, 300_000)]
        self.their_metadata = make(f"{INTERNALS}ShareConsumerMetadata", *times, False, self.subscriptions, log, listeners)
        acquire_mode = self.oracle.java_class(f"{KAFKA}{INTERNALS}ShareAcquireMode").of(mode)
        isolation = self.oracle.java_class(f"{KAFKA}common.IsolationLevel").READ_UNCOMMITTED
        limits = options.limits
        numbers = limits.min_bytes, limits.max_bytes, limits.max_wait_ms, 1_048_576, limits.max_poll_records
        config = make(f"{INTERNALS}ShareFetchConfig", *numbers, True, "", isolation, acquire_mode)
        self.their_buffer = make(f"{INTERNALS}ShareFetchBuffer", log)
        self.events = make(f"{INTERNALS}events.ShareAcknowledgementEventHandler", jvm.java.util.concurrent.LinkedBlockingQueue())
        metrics = self.oracle.java_class(f"{KAFKA}{INTERNALS}ConsumerUtils").createShareFetchMetricsManager(self.metrics())
        (constructor,) = named(self.oracle, f"{KAFKA}{INTERNALS}ShareConsumeRequestManager").getDeclaredConstructors()
        constructor.setAccessible(True)
        values = [self.clock.time, log, "g", self.their_metadata, self.subscriptions, config, self.their_buffer, self.events, metrics]
        arguments = self.oracle.gateway.new_array(jvm.java.lang.Object, 11)
        for index, value in enumerate([*values, self.java.long(100), self.java.long(100)]):
            arguments[index] = value
        self.theirs = constructor.newInstance(arguments)
        self.theirs.onMemberEpochUpdated(jvm.java.util.Optional.of(1), MEMBER)
        self.theirs.setAcknowledgementCommitCallbackRegistered(True)
        self._no_arguments = self.oracle.gateway.new_array(jvm.java.lang.Object, 0)
        unsent = named(self.oracle, f"{KAFKA}{INTERNALS}NetworkClientDelegate$UnsentRequest")
        no_types = self.oracle.gateway.new_array(jvm.java.lang.Class, 0)
        self._methods = {name: unsent.getDeclaredMethod(name, no_types) for name in ("requestBuilder", "handler", "node")}
        for method in self._methods.values():
            method.setAccessible(True)

    def metrics(self) -> Any:
        config = self.java.make("common.metrics.MetricConfig").tags(self.oracle.jvm.java.util.Map.of("client-id", "c"))
        return self.java.make("common.metrics.Metrics", config)

    def of_unsent(self, name: str, unsent: Any) -> Any:
        return self._methods[name].invoke(unsent, self._no_arguments)

    # values for both

    def part(self, part: TopicIdPartition) -> Any:
        key = self.java.make("common.TopicPartition", part.topic, part.partition)
        return self.java.make("common.TopicIdPartition", self.java.uuid(part.topic_id), key)

    def acknowledgements(self, *, in_session: bool = False) -> tuple[AcknowledgementMap, Any]:
        """Return some acknowledgements, for nodes with a session, mostly for the leader. With `in_session`, the session
        has the partitions.
        """
        kinds = self.oracle.jvm.org.apache.kafka.clients.consumer.AcknowledgeType
        ours: AcknowledgementMap = {}
        theirs = self.oracle.jvm.java.util.LinkedHashMap()
        for part in PARTS:
            node_id = self.leaders[part][0] if self.rng.random() < 0.8 else self.rng.choice((1, 2, 3))
            session = self.ours.sessions.get(node_id)
            if session is None or self.rng.random() < 0.4 or (in_session and part not in session.partitions.values()):
                continue
            one, other = Acknowledgements(), self.oracle.java_class(f"{KAFKA}{INTERNALS}Acknowledgements").empty()
            start, favourite = self.rng.randrange(10), self.rng.randint(0, 3)
            for offset in range(start, start + self.rng.choice((1, 3, 30))):
                if self.rng.random() < 0.95:
                    kind = favourite if self.rng.random() < 0.9 else self.rng.randint(0, 4)
                    one.types[offset] = kind
                    if kind:
                        other.add(self.java.long(offset), kinds.forId(self.oracle.jvm.java.lang.Byte.valueOf(str(kind))))
                    else:
                        other.addGap(self.java.long(offset))
            if not one.types:
                continue
            ours[part] = NodeAcknowledgements(node_id, one)
            theirs.put(self.part(part), self.java.make(f"{INTERNALS}NodeAcknowledgements", node_id, other))
        return ours, theirs

    def new_metadata(self) -> None:
        """Give both the leaders and nodes."""
        partitions: dict[str, list[MetadataResponsePartition]] = {}
        for part, (leader, epoch) in self.leaders.items():
            one = MetadataResponsePartition(0, part.partition, leader, epoch, [1, 2, 3], [1, 2, 3], [])
            if leader < 0:
                one.error_code = errors.by_name("LEADER_NOT_AVAILABLE").code
            partitions.setdefault(part.topic, []).append(one)
        response = MetadataResponse(
            brokers=[MetadataResponseBroker(node_id, f"n{node_id}", 9092) for node_id in sorted(self.nodes)],
            cluster_id="c",
            topics=[MetadataResponseTopic(0, topic, IDS[topic], False, found) for topic, found in partitions.items()],
        )
        self.metadata.request(self.clock.now_ms)
        self.metadata.take_answer(response, self.clock.now_ms)
        data = self.java.message(response, 12)
        real = self.java.make("common.requests.MetadataResponse", data, self.java.short(12))
        self.their_metadata.updateWithCurrentRequestVersion(real, False, self.clock.now_ms)

    # steps

    def fetch(self) -> None:
        ours, theirs = self.acknowledgements() if self.rng.random() < 0.6 else ({}, self.oracle.jvm.java.util.Map.of())
        self.ours.fetch(ours)
        self.theirs.fetch(theirs)

    def commit(self) -> None:
        # Kafka's commitSync ends too early if one of several partitions is not in the session.
        is_async = self.rng.random() < 0.5
        ours, theirs = self.acknowledgements(in_session=not is_async)
        deadline_ms = self.clock.now_ms + self.rng.choice((50, 150, 1000))
        if not ours:
            return
        if is_async:
            self.ours.commit_async(ours, deadline_ms, self.clock.now_ms)
            self.theirs.commitAsync(theirs, deadline_ms)
        else:
            commit = self.ours.commit_sync(ours, deadline_ms, self.clock.now_ms)
            self.commits.append((commit, self.theirs.commitSync(theirs, deadline_ms)))

    def close(self) -> None:
        ours, theirs = self.acknowledgements()
        self.ours.close(ours, self.clock.now_ms + 1000, self.clock.now_ms)
        self.close_future = self.theirs.acknowledgeOnClose(theirs, self.clock.now_ms + 1000)

    def assign(self) -> None:
        keys = sorted(TopicPartition(part.topic, part.partition) for part in self.rng.sample(PARTS, self.rng.randint(0, len(PARTS))))
        self.ours.assigned = dict.fromkeys(keys)
        listed = self.oracle.jvm.java.util.ArrayList([self.java.make("common.TopicPartition", *key) for key in keys])
        self.subscriptions.assignFromSubscribed(listed)

    def move(self) -> None:
        for part in PARTS:
            if self.rng.random() < 0.4:
                self.leaders[part] = (self.rng.choice((1, 2, 3, -1)), self.leaders[part][1] + 1)
        self.nodes = {1, 2, 3} if self.rng.random() < 0.8 else {1, 3}
        self.new_metadata()

    def wait(self) -> None:
        self.clock.now_ms += self.rng.choice((10, 60, 200))

    def turn(self) -> None:
        """Compare the requests of both, which must be equal. Their order does not matter, because each goes to another node."""
        ours = {one.node.id: one for one in self.ours.turn(self.clock.now_ms)}
        theirs = {}
        for unsent in get_field(self.theirs.poll(self.clock.now_ms), "unsentRequests").toArray():
            node_id = self.of_unsent("node", unsent).get().id()
            assert node_id not in theirs
            theirs[node_id] = unsent
        found = {node_id: shown(one.message) for node_id, one in ours.items()}
        expected = {node_id: shown(self.read(self.of_unsent("requestBuilder", unsent).data())) for node_id, unsent in theirs.items()}
        assert found == expected
        for node_id, one in ours.items():
            self.seen[type(one.message).__name__] += 1
            self.sent.append(Sent(node_id, one.message, one.answered, theirs[node_id]))

    def read(self, data: Any) -> Message:
        kind = ShareFetchRequest if data.getClass().getSimpleName() == "ShareFetchRequestData" else ShareAcknowledgeRequest
        return kind.decode(self.java.message_bytes(data, VERSION), VERSION)

    def answer(self) -> None:
        if not self.sent:
            return
        sent = self.sent.pop(self.rng.randrange(len(self.sent)))
        handler = self.of_unsent("handler", sent.theirs)
        if self.rng.random() < 0.1:
            name = self.rng.choice(("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT"))
            # Kafka's client has an exception without a code for a lost connection.
            kind = "TimeoutException" if name == "REQUEST_TIMED_OUT" else "NetworkException"
            handler.onFailure(self.clock.now_ms, self.java.make(f"common.errors.{kind}", "gone"))
            sent.answered(ApiError(name, "gone"), self.clock.now_ms)
            return
        is_fetch = isinstance(sent.message, ShareFetchRequest)
        response = self.fetched() if is_fetch else self.acknowledged(sent.message)
        kind = "ShareFetch" if is_fetch else "ShareAcknowledge"
        parse = self.oracle.java_class(f"{KAFKA}common.requests.{kind}Response").parse
        real = parse(self.java.accessor(self.java.wrap(response.encode(VERSION))), self.java.short(VERSION))
        key = self.oracle.java_class(f"{KAFKA}common.protocol.ApiKeys").forId(78 if is_fetch else 79)
        header = self.java.make("common.requests.RequestHeader", key, self.java.short(VERSION), "c", 1)
        now_ms = self.clock.now_ms
        handler.onComplete(
            self.java.make("clients.ClientResponse", header, None, str(sent.node_id), now_ms, now_ms, False, None, None, real)
        )
        sent.answered(response, now_ms)

    def code(self, chance: float) -> int:
        code = self.rng.choice(CODES) if self.rng.random() < chance else 0
        self.seen["error"] += code != 0
        return code

    def parts(self) -> Iterable[tuple[bytes, list[int]]]:
        for topic, topic_id in IDS.items():
            yield topic_id, [part.partition for part in PARTS if part.topic == topic and self.rng.random() < 0.85]

    def leader(self) -> tuple[int, int]:
        return (self.rng.choice((1, 2, 3)), self.rng.choice((0, 50))) if self.rng.random() < 0.2 else (-1, -1)

    def fetched(self) -> ShareFetchResponse:
        topics = []
        for topic_id, partitions in self.parts():
            found = []
            for partition in partitions:
                leader_id, epoch = self.leader()
                acquired = [fetching.AcquiredRecords(0, 4, 1)] if self.rng.random() < 0.3 else []
                current = fetching.LeaderIdAndEpoch(epoch, leader_id)
                codes = self.code(0.2), self.code(0.2)
                found.append(fetching.PartitionData(partition, codes[0], None, codes[1], None, current, b"", acquired))
            topics.append(fetching.ShareFetchableTopicResponse(topic_id, found))
        lock_ms = self.rng.choice((0, 30_000))
        return ShareFetchResponse(error_code=self.code(0.15), acquisition_lock_timeout_ms=lock_ms, responses=topics)

    def acknowledged(self, request: Message) -> ShareAcknowledgeResponse:
        assert isinstance(request, ShareAcknowledgeRequest)
        topics = []
        for topic in request.topics:
            found = []
            for partition in topic.partitions:
                if self.rng.random() < 0.9:
                    leader_id, epoch = self.leader()
                    current = acknowledging.LeaderIdAndEpoch(epoch, leader_id)
                    found.append(acknowledging.PartitionData(partition.partition_index, self.code(0.4), None, current))
            topics.append(acknowledging.ShareAcknowledgeTopicResponse(topic.topic_id, found))
        lock_ms = self.rng.choice((0, 30_000))
        return ShareAcknowledgeResponse(error_code=self.code(0.25), acquisition_lock_timeout_ms=lock_ms, responses=topics)

    # the knowledge of both

    def compare(self) -> None:
        ours = Counter(outcome for one in self.take_completed() for outcome in our_outcomes(one))
        theirs: Counter[Shown] = Counter()
        for event in self.events.drainEvents().toArray():
            timeout = event.acquisitionLockTimeoutMs().orElse(None)
            for entry in event.acknowledgementsMap().entrySet():
                theirs[(*self.their_outcome(entry), event.checkForRenewAcknowledgements(), timeout)] += 1
        assert ours == theirs, (ours - theirs, theirs - ours)
        self.seen["outcomes"] += sum(ours.values())
        assert self.buffer.is_empty == (not self.theirs.hasCompletedFetches())
        still = []
        for commit, future in self.commits:
            assert commit.is_done == future.isDone()
            if commit.outcome is None:
                still.append((commit, future))
                continue
            found = {(one.topic, one.partition): error_name(error) for one, error in commit.outcome.items()}
            assert found == {outcome[:2]: outcome[3] for outcome in map(self.their_outcome, future.get().entrySet())}
            self.seen["commits"] += 1
        self.commits = still
        if self.close_future is not None:
            assert self.ours.is_closed == self.close_future.isDone()

    def take_completed(self) -> list[Completed]:
        completed, self.ours.completed = self.ours.completed, []
        return completed

    def their_outcome(self, entry: Any) -> Shown:
        part, acknowledgements = entry.getKey(), entry.getValue()
        types = tuple(
            (one.getKey(), 0 if one.getValue() is None else one.getValue().ordinal() + 1)
            for one in acknowledgements.getAcknowledgementsTypeMap().entrySet()
        )
        error = acknowledgements.getAcknowledgeException()
        name = "NONE" if error is None else self.oracle.java_class(f"{KAFKA}common.protocol.Errors").forException(error).name()
        return part.topic(), part.partition(), types, name


def error_name(error: ApiError | None) -> str:
    """Return the name of an error, or NONE."""
    return "NONE" if error is None else error.name


def our_outcomes(completed: Completed) -> Iterable[Shown]:
    for part, one in completed.acknowledgements.items():
        types = tuple(sorted(one.types.items()))
        yield part.topic, part.partition, types, error_name(one.error), completed.may_renew, completed.lock_timeout_ms


def shown(message: Message) -> Shown:
    """Return the contents of a request. Topics and partitions are sorted, because Kafka's are in the order of a HashMap."""
    assert isinstance(message, ShareFetchRequest | ShareAcknowledgeRequest)
    topics = sorted(
        (topic.topic_id, sorted((one.partition_index, tuple(map(str, one.acknowledgement_batches))) for one in topic.partitions))
        for topic in message.topics
    )
    base = (message.group_id, message.member_id, message.share_session_epoch, message.is_renew_ack, topics)
    if isinstance(message, ShareAcknowledgeRequest):
        return base
    forgotten = sorted((one.topic_id, sorted(one.partitions)) for one in message.forgotten_topics_data)
    limits = message.max_wait_ms, message.min_bytes, message.max_bytes, message.max_records, message.batch_size, message.share_acquire_mode
    return (*base, forgotten, *limits)


@pytest.mark.parametrize("mode", ["batch_optimized", pytest.param("record_limit", marks=pytest.mark.slow)])
def test_requests_and_outcomes_are_kafkas(oracle: Oracle, mode: str, seed_count: int | None) -> None:
    seen: Counter[str] = Counter()
    for seed in range(seed_count or 2):
        rng = random.Random(f"{mode} {seed}")
        twins = Twins(oracle, rng, mode)
        twins.assign()
        for _ in range(120):
            (step,) = rng.choices(
                (twins.fetch, twins.commit, twins.assign, twins.move, twins.wait, twins.turn, twins.answer),
                (4, 5, 1, 1, 3, 8, 8),
            )
            step()
            twins.compare()
        twins.close()
        for _ in range(40):
            for step in (twins.turn, twins.compare, twins.answer, twins.compare, twins.wait):
                step()
            if twins.ours.is_closed:
                break
        seen += twins.seen
    assert seen["ShareFetchRequest"] > 4
    assert seen["ShareAcknowledgeRequest"] > 4
    assert min(seen["commits"], seen["outcomes"], seen["error"]) > 1
