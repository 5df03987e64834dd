"""The parts of kops's consumer that fetch and Kafka's Fetcher, OffsetFetcher and SubscriptionState, in the same dialogue with brokers.

Both get the same assignments, seeks, pauses, answers, metadata and times. After each step their requests, records, errors, the states of
all partitions, and whether they want metadata must be the same.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kops.client.consumer.core.collecting import PLAIN
from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.errors import LogTruncationError
from kops.client.consumer.options import ConsumerOptions, Reset
from kops.client.consumer.parts.requests import Outcome, Outgoing
from kops.client.errors import KafkaError
from kops.client.node import Node
from kops.errors import ApiError
from kops.protocol.connections.node_versions import NodeVersions
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from kops.protocol.messages.fetch_response import (
    AbortedTransaction,
    FetchableTopicResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsTopicResponse
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic
from kops.protocol.messages.offset_for_leader_epoch_response import EpochEndOffset, OffsetForLeaderTopicResult
from kops.records.build import build_batch, end_txn_marker
from kops.records.log_offsets import TopicPartition
from kops.records.record import Record
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_fetcher import JavaFetcher
from tests.support.kafka.twins.java_producer import Sent
from tests.support.kafka.twins.producer_twins import api_versions, topic_id

START_MS: Final = 10**12
TOPICS: Final = {"a": 3, "b": 2, "c": 1}
KEYS: Final = tuple(f"{name}-{index}" for name, count in TOPICS.items() for index in range(count))
NODES: Final = (1, 2, 3)
BACKOFF_MS, TIMEOUT_MS, AGE_MS = 100, 500, 1000
DURATION_MS: Final = 3_600_000
_REQUESTS: Final = {one.API_KEY: one for one in (FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest)}
_UNEXPECTED: Final = "IllegalStateException"


class _Links:
    """Connections that are up, except to bootstrap servers: a test decides when metadata comes."""

    def __init__(self, *, has_ids: bool) -> None:
        self.node_versions = NodeVersions(versions_of(has_ids=has_ids))
        self.is_down: set[int] = set()

    def least_loaded(self, nodes: Iterable[Node]) -> Node | None:
        return None

    def is_ready(self, node: Node) -> bool:
        return True

    def is_failing(self, node: Node) -> bool:
        return False

    def reason(self, node: Node) -> str:
        return ""

    def is_backing_off(self, node: Node) -> bool:
        return False

    def retry_ms(self, node: Node) -> float:
        return 0.0

    def versions(self, node: Node) -> NodeVersions | None:
        return self.node_versions


def versions_of(*, has_ids: bool) -> Any:
    """Return what a node reports. Nodes of old versions know no topic ids in fetches."""
    found = api_versions(0, 0)
    for one in found.api_keys:
        if one.api_key == FetchRequest.API_KEY and not has_ids:
            one.max_version = 12
    return found


def key_of(text: str) -> TopicPartition:
    """Return the partition of a text such as a-0."""
    topic, _, index = text.rpartition("-")
    return TopicPartition(topic, int(index))


class FetchTwins:
    """Both consumers. `in_flight` has the requests that wait for an answer, in order."""

    def __init__(self, oracle: Oracle, settings: Mapping[str, Any], *, has_ids: bool = True) -> None:
        base: dict[str, Any] = {
            "max.poll.records": 5,
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            "auto.offset.reset": "earliest",
            "client.rack": "",
            "retry.backoff.ms": BACKOFF_MS,
            "request.timeout.ms": TIMEOUT_MS,
            "metadata.max.age.ms": AGE_MS,
        }
        self.settings = {**base, **settings}
        sizes = {"fetch.min.bytes": 1, "fetch.max.bytes": 1_000_000, "max.partition.fetch.bytes": 100_000, "fetch.max.wait.ms": 500}
        given = {"bootstrap.servers": "boot:9092", "retry.backoff.max.ms": BACKOFF_MS, **sizes, **self.settings}
        self.now_ms = START_MS
        self.links = _Links(has_ids=has_ids)
        self.java = JavaFetcher(oracle, START_MS, self.settings)
        self.core = ConsumerCore(
            ConsumerOptions.of(given), [("boot", 9092)], self.links, lambda: 0.5, self._wall_ms, PLAIN, [], lambda: "member", START_MS
        )
        self.has_ids = has_ids
        self.in_flight: list[tuple[int, Outgoing, Sent]] = []
        self.trace: list[str] = []
        self.sent = 0
        self.errors: list[str] = []
        self.records = 0
        self.has_ended = False
        self.java.learn_versions(versions_of(has_ids=has_ids))

    def _wall_ms(self) -> int:
        return time.time_ns() // 1_000_000  # Kafka asks the system's clock for the time of a duration, too

    # what both learn

    def learn(self, response: MetadataResponse) -> None:
        """Set the metadata."""
        rows = [(topic.name, [(one.leader_id, one.leader_epoch) for one in topic.partitions]) for topic in response.topics]
        self.trace.append(f"metadata {rows}")
        self.core.metadata.request(self.now_ms)
        self.core.metadata.received(response, self.now_ms)
        self.java.learn(response)

    def advance(self, ms: int) -> None:
        """Let time pass."""
        self.trace.append(f"+{ms} ms")
        self.now_ms += ms
        self.java.advance(ms)

    # what the program does

    def assign(self, keys: Sequence[str]) -> None:
        """Assign partitions, in the order of Kafka's hash set."""
        order = self.java.assign(keys)
        self.trace.append(f"assign {order}")
        self.core.assign(map(key_of, order))

    def seek(self, key: str, offset: int, epoch: int) -> None:
        """Seek. An epoch of -1 is unknown."""
        self.trace.append(f"seek {key} {offset}/{epoch}")
        self.java.java.seek(key, offset, epoch)
        self.core.seek(key_of(key), offset, epoch if epoch >= 0 else None)

    def reset(self, key: str, strategy: str) -> None:
        """Seek to the beginning or to the end."""
        self.trace.append(f"reset {key} {strategy}")
        self.java.java.reset(key, strategy)
        reset = Reset.of(strategy)
        assert reset is not None
        self.core.reset([key_of(key)], reset)

    def pause(self, key: str, *, is_paused: bool) -> None:
        """Pause or resume."""
        self.trace.append(f"pause {key} {is_paused}")
        self.java.java.pause(key, is_paused)
        self.core.subscriptions.state(key_of(key)).is_paused = is_paused

    def poll(self) -> str:
        """Let both poll until no error is left, and compare records, errors and requests. Returns Kafka's outcome."""
        java = ""
        for _ in range(4):
            java = str(self.java.java.positions())
            if not java:
                java = str(self.java.java.collect())
                self.java.java.positions()
                self.java.java.fetches()
            mine = self._poll()
            self.trace.append(f"poll {java!r}")
            if java.startswith("!") or java[0] not in "+-":
                self.errors.append(java)
            assert self._is_same(java, mine), self._told(mine)
            if java == "NoOffsetForPartitionException":
                for key in self.core.subscriptions.initializing():
                    self.seek(f"{key.topic}-{key.partition}", 7, -1)
            if java[0] in "+-!":
                self.records += java.count("=")
                break
        self._compare(self.core.turn(self.now_ms, in_poll=True)[0], self.java.take())
        self.compare_states()
        return java

    def _poll(self) -> str:
        try:
            records = self.core.poll(self.now_ms)
        except LogTruncationError as error:
            places = ", ".join(f"{key.topic}-{key.partition}={offset}" for key, offset in sorted(error.offsets.items()))
            divergent = ", ".join(
                f"{key.topic}-{key.partition}={one.offset}/{-1 if one.leader_epoch is None else one.leader_epoch}"
                for key, one in sorted(error.divergent_offsets.items())
            )
            return f"LogTruncationException {{{places}}}{{{divergent}}}"
        except KafkaError as error:
            return java_name(error)
        if records is None:
            return "-"
        found: dict[TopicPartition, str] = {}
        for one in records:
            key = TopicPartition(one.topic, one.partition)
            epoch = -1 if one.leader_epoch is None else one.leader_epoch
            found[key] = found.get(key, "") + f"{one.offset}/{epoch}={one.value.decode()},"
        return "+" + "".join(f"{key.topic}-{key.partition}:{text} " for key, text in found.items())

    @staticmethod
    def _is_same(java: str, mine: str) -> bool:
        """Whether both polls had the same outcome.

        For a code that a fetch should not have, Kafka throws IllegalStateException, and kops the error of the code. Kafka throws this one
        even if it has records, which it loses. kops returns them first.
        """
        if java == f"!{_UNEXPECTED}":
            return bool(mine)
        if java == "!KafkaException":
            return mine not in ("", "-") and mine[0] != "+"
        if java[0] in "+-":
            return java[0] == mine[0] and sorted(java[1:].split()) == sorted(mine[1:].split())
        return java.removeprefix("!") == mine

    def look_up(self, keys: Sequence[str], time_ms: int) -> Outcome:
        """Ask for the offsets of a time, and compare the requests."""
        outcome = self.core.offsets.look_up(dict.fromkeys(map(key_of, keys), time_ms))
        self.java.java.lookUp(",".join(keys), time_ms)
        self._compare(self.core.offsets.turn(self.now_ms), self.java.take())
        return outcome

    def compare_look_up(self, outcome: Outcome) -> str:
        """Compare what a look-up has found so far. Returns Kafka's outcome."""
        java = str(self.java.java.lookedUp())
        if not outcome.is_done:
            mine = "again"
        elif isinstance(outcome.error, KafkaError):
            mine = java_name(outcome.error)
        else:
            found = {f"{key.topic}-{key.partition}": one for key, one in outcome.result().items() if one.offset >= 0}
            texts = (f"{key}={one.offset}/{-1 if one.epoch is None else one.epoch}@{one.timestamp}" for key, one in sorted(found.items()))
            mine = f"{{{', '.join(texts)}}}"
        assert mine == java, self._told(f"{mine}, Kafka: {java}")
        self.compare_states()
        return java

    # the network

    def _compare(self, own: list[Outgoing], java: list[Sent]) -> None:
        own.sort(key=lambda one: (one.node.id, one.message.API_KEY or 0))
        places = Counter((one.node, one.api_key) for one in java)
        if any(count > 1 for count in places.values()):
            # A position was out of range while another partition waited for its reset: Kafka asks for each in a request of its own.
            assert places.keys() == {(one.node.id, one.message.API_KEY) for one in own}, self._told(own)
            self.has_ended = True
            return
        order = sorted(range(len(java)), key=lambda index: (java[index].node, java[index].api_key))
        mine = [self._seen(one) for one in own]
        theirs = [(java[index].node, java[index].api_key, java[index].version, normal(java[index])) for index in order]
        self.trace.append(f"requests {theirs}")
        assert mine == theirs, self._told(mine)
        for index, one in zip(order, own, strict=True):
            self.in_flight.append((self.sent + index, one, java[index]))
        self.sent += len(java)
        self.in_flight.sort(key=lambda entry: entry[0])

    def _seen(self, one: Outgoing) -> tuple[int, int, int, object]:
        key = one.message.API_KEY
        assert key is not None
        version = self.links.node_versions.latest(key, one.versions)
        return one.node.id, key, version, normal(Sent(one.node.id, key, version, one.message.encode(version), True))

    def answer(self, place: int, answer: Message | ApiError, *, ends_step: bool = True) -> None:
        """End a request. At the end of a step, the states are compared."""
        index, outgoing, sent = self.in_flight.pop(place)
        self.trace.append(f"answer of {sent.node}: {answer!r}")
        said = self.java.answer(index, answer, sent.version)
        assert not said, self._told(said)
        outgoing.answered(answer, self.now_ms)
        if ends_step:
            self.compare_states()

    def end(self) -> None:
        """Close both, and compare the requests that end their sessions. Kafka sends one even if there is no session."""
        self.java.java.end()
        self.trace.append("close")
        java = [one for one in self.java.take() if FetchRequest.decode(one.data, one.version).session_id]
        self._compare(self.core.close_sessions(), java)

    # the comparison

    def compare_states(self) -> None:
        """Compare the states of all partitions in order, and whether metadata is wanted."""
        if self.has_ended:
            return
        java = str(self.java.java.report()).split(";")
        subscriptions = self.core.subscriptions
        own = []
        for key, state in subscriptions.partitions.items():
            place = ""
            if state.position is not None:
                epoch = -1 if state.position.epoch is None else state.position.epoch
                place = f" {state.position.offset}/{epoch}@{state.position.leader.node_id}/{state.position.leader.epoch}"
            end = state.stable_offset if self.core.options.is_committed else state.high_watermark
            lead = None if state.log_start is None or state.position is None else state.position.offset - state.log_start
            replica = state.read_replica(self.now_ms)
            numbers = [
                -1 if replica is None else replica,
                str(state.is_paused).lower(),
                "null" if end is None else end,
                "null" if lead is None else lead,
                int(max(state.retry_ms - self.now_ms, 0)),
            ]
            own.append(f"{key.topic}-{key.partition} {state.phase.name}{place} {' '.join(map(str, numbers))}")
        own.append(str(self.core.metadata.is_wanted).lower())
        assert own == java, self._told("\n".join(f"{mine}\n  Kafka: {theirs}" for mine, theirs in zip(own, java, strict=True)))

    def _told(self, last: object) -> str:
        return "\n".join([*self.trace, f"kops: {last}"])


def java_name(error: KafkaError) -> str:
    """Return Kafka's exception class for an error."""
    own = {"LOG_TRUNCATION": "LogTruncationException", "NO_OFFSET_FOR_PARTITION": "NoOffsetForPartitionException"}
    return own.get(error.name) or by_name(error.name).exception


def normal(sent: Sent) -> object:
    """Return a request without the order of what Kafka takes from hash maps. The order of the partitions of a fetch stays."""
    message: Any = _REQUESTS[sent.api_key].decode(sent.data, sent.version)
    if isinstance(message, FetchRequest):
        forgotten = sorted((one.topic, one.topic_id, sorted(one.partitions)) for one in message.forgotten_topics_data)
        message.forgotten_topics_data = []
        return repr(message), forgotten
    rows = []
    for topic in message.topics:
        for one in topic.partitions:
            if isinstance(message, ListOffsetsRequest):
                text = "by duration" if abs(one.timestamp + DURATION_MS - time.time_ns() // 1_000_000) < DURATION_MS / 2 else one.timestamp
                rows.append((topic.name, one.partition_index, one.current_leader_epoch, text))
            else:
                rows.append((topic.topic, one.partition, one.current_leader_epoch, one.leader_epoch))
    message.topics = []
    return repr(message), sorted(rows)


class FetchLife:
    """Random steps of both twins. The same seed gives the same life."""

    def __init__(self, twins: FetchTwins, dice: random.Random, *, errors: Iterable[str], trouble: float = 0.3) -> None:
        self.twins = twins
        self.dice = dice
        self._errors = list(errors)
        self._trouble = trouble
        self.epochs = dict.fromkeys(KEYS, 3)
        self._sessions: dict[int, dict[str, tuple[str, bytes]]] = {}
        self._numbers = 100
        # Metadata of an older epoch changes no leader. Kafka keeps the offline replicas then, too. kops takes those of the last answer.
        self._is_old = dice.random() < 0.5
        self._ids = {name: topic_id(name) if twins.has_ids else bytes(16) for name in TOPICS}
        twins.assign(dice.sample(KEYS, dice.randint(2, len(KEYS))))
        twins.learn(self.metadata())
        twins.poll()

    def step(self) -> None:
        """Do one step."""
        twins, dice = self.twins, self.dice
        chance = dice.random()
        if chance < 0.42 and twins.in_flight:
            place = dice.randrange(len(twins.in_flight))
            twins.answer(place, self._answer(twins.in_flight[place]))
        elif chance < 0.75:
            if twins.poll().startswith("!") and dice.random() < 0.7:
                self._pass()
        elif chance < 0.83:
            twins.advance(dice.choice((10, 50, 100, 100, 500, 1100)))
        elif chance < 0.9 or (chance < 0.97 and twins.core.metadata.is_wanted):
            self._elect()
            twins.learn(self.metadata())
            twins.poll()
        else:
            self._act()

    def answer_first(self) -> None:
        """Answer the request that has waited for the longest time."""
        self.twins.answer(0, self._answer(self.twins.in_flight[0]))

    def end(self) -> None:
        """Answer everything without errors, then close."""
        self._trouble = 0
        twins = self.twins
        for _ in range(12):
            twins.advance(BACKOFF_MS)
            twins.learn(self.metadata())
            twins.poll()
            if twins.has_ended:
                return
            while twins.in_flight:
                twins.answer(0, self._answer(twins.in_flight[0]))
        twins.end()

    # the program

    def _pass(self) -> None:
        """Seek behind what can't be read."""
        for key, state in self.twins.core.subscriptions.partitions.items():
            if state.position is not None:
                self.twins.seek(f"{key.topic}-{key.partition}", state.position.offset + 1, -1)

    def _act(self) -> None:
        twins, dice = self.twins, self.dice
        assigned = [f"{key.topic}-{key.partition}" for key in twins.core.subscriptions.partitions]
        key, chance = dice.choice(assigned), dice.random()
        if chance < 0.3:
            twins.seek(key, dice.randrange(50), dice.choice((-1, -1, self.epochs[key] - 1, self.epochs[key], self.epochs[key] + 1)))
        elif chance < 0.45:
            twins.reset(key, dice.choice(("earliest", "latest", "by_duration:PT1H")))
        elif chance < 0.9:
            twins.pause(key, is_paused=dice.random() < 0.5)
        else:
            twins.assign(dice.sample(KEYS, dice.randint(1, len(KEYS))))
            twins.learn(self.metadata())  # Kafka asks for it after every assignment, kops only if there are new topics
        twins.compare_states()

    # the brokers

    def _elect(self) -> None:
        for key in self.epochs:
            if self.dice.random() < 0.2:
                self.epochs[key] += 1
        if self.dice.random() < 0.1 and self.twins.has_ids:
            name = self.dice.choice(list(TOPICS))
            self._ids[name] = self.dice.randbytes(16)

    def metadata(self) -> MetadataResponse:
        """Return the topics. Sometimes a partition has no leader, or a broker that knows an older epoch answers."""
        dice = self.dice
        topics = []
        wanted = {key.topic for key in self.twins.core.subscriptions.partitions}
        for name, count in ((name, count) for name, count in TOPICS.items() if name in wanted):
            rows = []
            for index in range(count):
                is_lost, is_other = dice.random() < self._trouble / 6, dice.random() < self._trouble / 6
                is_old = self._is_old and is_other
                epoch = self.epochs[f"{name}-{index}"] - is_old
                offline = [dice.choice(NODES)] if is_other and not self._is_old else []
                rows.append(
                    MetadataResponsePartition(
                        error_code=by_name("LEADER_NOT_AVAILABLE" if is_lost else "NONE").code,
                        partition_index=index,
                        leader_id=-1 if is_lost else NODES[epoch % 3],
                        leader_epoch=epoch,
                        replica_nodes=[1, 2] if name == "c" else list(NODES),
                        isr_nodes=[1, 2],
                        offline_replicas=offline,
                    )
                )
            topics.append(MetadataResponseTopic(name=name, topic_id=self._ids[name], partitions=rows))
        brokers = [MetadataResponseBroker(node_id=one, host=f"b{one}", port=9092) for one in NODES]
        return MetadataResponse(brokers=brokers, controller_id=1, topics=topics)

    def _error(self) -> str:
        return self.dice.choice(self._errors) if self.dice.random() < self._trouble else "NONE"

    def _answer(self, entry: tuple[int, Outgoing, Sent]) -> Message | ApiError:
        _, outgoing, sent = entry
        if self.dice.random() < self._trouble / 5:
            return ApiError(self.dice.choice(("NETWORK_EXCEPTION", "REQUEST_TIMED_OUT", "UNSUPPORTED_VERSION")))
        message = outgoing.message
        if isinstance(message, FetchRequest):
            return self._fetched(message, sent)
        if isinstance(message, ListOffsetsRequest):
            return self._listed(message)
        assert isinstance(message, OffsetForLeaderEpochRequest)
        return self._ended(message)

    def _listed(self, message: ListOffsetsRequest) -> ListOffsetsResponse:
        dice = self.dice
        topics = []
        for topic in message.topics:
            rows = []
            for one in topic.partitions:
                name = self._error()
                epoch = self.epochs[f"{topic.name}-{one.partition_index}"] + (dice.random() < self._trouble / 4)
                is_known = name == "NONE" and dice.random() > self._trouble / 5
                rows.append(
                    ListOffsetsPartitionResponse(
                        partition_index=one.partition_index,
                        error_code=by_name(name).code,
                        offset=dice.randrange(50) if is_known else -1,
                        timestamp=-1,
                        leader_epoch=dice.choice((-1, epoch)) if is_known else -1,
                    )
                )
            topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
        return ListOffsetsResponse(topics=topics)

    def _ended(self, message: OffsetForLeaderEpochRequest) -> OffsetForLeaderEpochResponse:
        dice = self.dice
        topics = []
        for topic in message.topics:
            rows = []
            for one in topic.partitions:
                # Kafka throws, and validates nothing, if a partition that is not assigned any more is to be asked again.
                is_assigned = TopicPartition(topic.topic, one.partition) in self.twins.core.subscriptions.partitions
                name = self._error() if is_assigned else "NONE"
                if is_assigned and name == "NONE" and dice.random() < self._trouble / 4:
                    continue  # not answered
                is_known = name == "NONE" and dice.random() > self._trouble / 3
                rows.append(
                    EpochEndOffset(
                        error_code=by_name(name).code,
                        partition=one.partition,
                        leader_epoch=one.leader_epoch if is_known else -1,
                        end_offset=dice.choice((5, 20, 1000, 1000)) if is_known else -1,
                    )
                )
            topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
        return OffsetForLeaderEpochResponse(topics=topics)

    def _fetched(self, message: FetchRequest, sent: Sent) -> FetchResponse:
        dice = self.dice
        asked = self._session(message, sent.node)
        if dice.random() < self._trouble / 5:
            top = dice.choice(
                ("FETCH_SESSION_ID_NOT_FOUND", "INVALID_FETCH_SESSION_EPOCH", "FETCH_SESSION_TOPIC_ID_ERROR", "UNKNOWN_TOPIC_ID")
            )
            return FetchResponse(error_code=by_name(top).code)
        is_full = message.session_epoch <= 0
        chosen = [key for key in asked if is_full or dice.random() < 0.8]
        if dice.random() < self._trouble / 6 and chosen:
            chosen.pop(dice.randrange(len(chosen)))
        if dice.random() < self._trouble / 10:
            chosen = [*chosen, *(key for key in KEYS[:2] if key not in asked)]
        topics: dict[str, list[PartitionData]] = {}
        for key in chosen:
            at = key_of(key)
            topics.setdefault(at.topic, []).append(self._partition(at, asked.get(key, (0, b""))[0]))
        self._numbers += is_full
        session = 0 if dice.random() < 0.1 else (self._numbers if is_full else message.session_id)
        rows = []
        for name, partitions in topics.items():
            known = next((one[1] for key, one in asked.items() if key_of(key).topic == name), self._ids[name])
            names: dict[str, Any] = {"topic_id": known} if sent.version >= 13 else {"topic": name}
            rows.append(FetchableTopicResponse(partitions=partitions, **names))
        ends = [NodeEndpoint(node_id=one, host=f"b{one}", port=9092, rack=None) for one in NODES if dice.random() < 0.9]
        return FetchResponse(session_id=session, responses=rows, node_endpoints=ends if sent.version >= 16 else [])

    def _session(self, message: FetchRequest, node: int) -> dict[str, tuple[int, bytes]]:
        """Return the partitions of the session of a request, with offset and topic id."""
        kept: Any = {} if message.session_epoch <= 0 else self._sessions.get(node, {})
        for topic in message.forgotten_topics_data:
            for index in topic.partitions:
                kept.pop(f"{topic.topic}-{index}", None)
        for one in message.topics:
            for row in one.partitions:
                kept[f"{one.topic}-{row.partition}"] = (row.fetch_offset, one.topic_id)
        self._sessions[node] = kept
        return dict(kept)

    def _partition(self, at: TopicPartition, offset: int) -> PartitionData:
        dice = self.dice
        name = self._error()
        key = f"{at.topic}-{at.partition}"
        data = PartitionData(partition_index=at.partition, error_code=by_name(name).code, high_watermark=-1, records=b"")
        if dice.random() < self._trouble:
            epoch = self.epochs[key] + dice.choice((0, 0, 1))
            data.current_leader = LeaderIdAndEpoch(dice.choice((-1, 1, 2, 3)), epoch)
            if name in ("NOT_LEADER_OR_FOLLOWER", "FENCED_LEADER_EPOCH") and data.current_leader.leader_id > 0:
                self.epochs[key] = epoch
        if name != "NONE":
            data.records = dice.choice((b"", b"", None))
            return data
        data.high_watermark, data.last_stable_offset = offset + 30, offset + dice.choice((10, 30))
        data.log_start_offset = dice.choice((-1, 0, 2))
        if dice.random() < 0.1:
            data.preferred_read_replica = dice.choice(NODES)
            return data
        self._fill(data, offset, self.epochs[key])
        return data

    def _fill(self, data: PartitionData, offset: int, epoch: int) -> None:
        """Put batches into an answer: plain, compressed, of transactions, with gaps, cut off, or damaged."""
        dice = self.dice
        found, next_offset, aborted = b"", max(offset - dice.randrange(3), 0), []
        for _ in range(dice.randrange(4)):
            count = dice.randint(1, 4)
            fields: dict[str, Any] = {
                "codec": dice.choice(("none", "none", "gzip", "zstd")),
                "partition_leader_epoch": dice.choice((epoch, epoch, -1)),
            }
            is_transaction = dice.random() < 0.3
            if is_transaction:
                fields |= {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
            records = [Record(next_offset + one, 5, "CreateTime", None, f"v{next_offset + one}".encode()) for one in range(count)]
            batch = build_batch(records, **fields)
            if dice.random() < self._trouble / 15:
                batch = batch[:17] + bytes([batch[17] ^ 1]) + batch[18:]  # a wrong checksum
            found += batch
            if is_transaction and dice.random() < 0.7:
                is_committed = dice.random() < 0.5
                if not is_committed:
                    aborted.append(AbortedTransaction(7, next_offset))
                found += end_txn_marker(
                    next_offset + count,
                    5,
                    commit=is_committed,
                    coordinator_epoch=0,
                    producer_id=7,
                    producer_epoch=0,
                    partition_leader_epoch=epoch,
                )
                count += 1
            next_offset += count + dice.choice((0, 0, 0, 2))
        if found and dice.random() < self._trouble / 4:
            found = found[: dice.randrange(len(found) // 3, len(found))]
        data.records, data.aborted_transactions = found, aborted
