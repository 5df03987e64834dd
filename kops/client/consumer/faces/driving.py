"""Shared by the faces of the consumer: the core with its connections, one turn, interceptors, and the checks of a program's arguments.

Source: Kafka's ClassicKafkaConsumer and AsyncKafkaConsumer (constructors, arguments), ConsumerInterceptors.
"""

from __future__ import annotations

import base64
import itertools
import logging
import random
import re
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from kops.client.consumer.core.collecting import Deserializers
from kops.client.consumer.core.consumer import ConsumerCore
from kops.client.consumer.deserializers import find_deserializer
from kops.client.consumer.errors import ConsumerError, WakeupError
from kops.client.consumer.groups.calls import LOST, REVOKED, GroupMembership, ListenerCall
from kops.client.consumer.options import ConsumerOptions
from kops.client.consumer.records import ConsumerRecords, OffsetAndMetadata, SubscriptionPattern, as_offset
from kops.client.errors import KafkaError, KafkaTimeoutError
from kops.client.faces.driving import client_metrics, network_settings, shielded
from kops.client.faces.pushing import Pusher
from kops.client.groups.strategies import make_assignors
from kops.client.metrics.consumer import COORDINATOR_GROUP, ConsumerMetrics
from kops.client.metrics.network import NetworkMetrics
from kops.client.network import NetworkClient
from kops.client.settings import is_text, parse_addresses
from kops.errors import ApiError, UsageError
from kops.protocol import api_keys
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.consumer.groups.commits import Committed
    from kops.client.consumer.parts.requests import Outgoing
    from kops.client.groups.assignors import Assignor
    from kops.client.node import Node
    from kops.protocol.declaration import Message

logger = logging.getLogger("kops.client")
Key = tuple[str, int]  # a TopicPartition, or any pair of a topic and a partition
OnCommit = Callable[[Mapping[TopicPartition, OffsetAndMetadata], "Exception | None"], object]
_numbers = itertools.count(1)
_METHODS: Final = ("on_partitions_assigned", REVOKED, LOST)


class ListenerError(ConsumerError):
    """A rebalance listener has failed. Its error is the cause."""

    code_name = "LISTENER_FAILED"


class Driver:
    """A core with its connections. The caller guards the core."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self.options = ConsumerOptions.of(given)
        values = self.options.values
        deserializers = Deserializers(find_deserializer(values["key.deserializer"]), find_deserializer(values["value.deserializer"]))
        self.interceptors = [_instance("interceptor.classes", one) for one in _as_list(values["interceptor.classes"])]
        assignors = [] if self.options.uses_consumer_protocol else _assignors(_as_list(values["partition.assignment.strategy"]))
        self.client_id = str(values["client.id"]) if "client.id" in given else self._make_name()
        settings = network_settings(values, self.client_id)
        bootstrap = parse_addresses(settings.bootstrap_servers)
        self.all_metrics = client_metrics(values, self.client_id)
        network_metrics = NetworkMetrics(self.all_metrics, "consumer")
        self.network = NetworkClient(settings, warn=logger.warning, metrics=network_metrics)
        self._network_metrics = network_metrics
        self.metrics = ConsumerMetrics(self.all_metrics, self.network.now_ms, is_classic=not self.options.uses_consumer_protocol)
        self._changes = 0  # the assignment whose partitions have metrics
        self.core = ConsumerCore(
            self.options,
            bootstrap,
            self.network,
            random.random,
            lambda: time.time_ns() // 1_000_000,
            deserializers,
            assignors,
            lambda: base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode(),
            self.network.now_ms(),
            self.metrics,
        )
        self.all_metrics.gauge(COORDINATOR_GROUP, "assigned-partitions", lambda now_ms: len(self.core.subscriptions.partitions))
        self._rack = given.get("client.rack")
        self.pusher = Pusher(values, self.all_metrics, self.network, self._nodes, self._labels, self._count_answer)
        self.listener: Any = None
        self.answers = 0

    def _make_name(self) -> str:
        group_id, number = self.options.group_id, next(_numbers)
        if group_id is None:
            return f"consumer-{number}"
        return f"consumer-{group_id}-{self.options.instance_id or number}"

    def turn(self, *, in_poll: bool) -> float:
        """Send the requests that are due. Returns the maximum time until the next turn in ms."""
        requests, wait_ms = self.core.turn(self.network.now_ms(), in_poll=in_poll)
        self.send(requests)
        subscriptions = self.core.subscriptions
        if self._changes != subscriptions.changes:
            self._changes = subscriptions.changes
            self.metrics.assigned(subscriptions.partitions, self._read_replica)
            self.metrics.reassigned()
        return min(wait_ms, self.pusher.turn())

    def _count_answer(self) -> None:
        self.answers += 1

    def _labels(self) -> dict[str, object]:
        """Return the description of this client for brokers that collect metrics."""
        options, identity = self.options, self.core.commits.member.identity()
        labels = {"group_id": options.group_id, "group_instance_id": options.instance_id, "client_rack": self._rack}
        return {**labels, "group_member_id": None if identity is None else identity.member_id}

    def _nodes(self) -> Iterable[Node]:
        return self.core.metadata.cluster.nodes.values()

    def _read_replica(self, key: TopicPartition, now_ms: float) -> int:
        """Return the replica that is read instead of the leader, or -1."""
        state = self.core.subscriptions.partitions.get(key)
        replica = None if state is None or now_ms > state.replica_until_ms else state.replica
        return -1 if replica is None else replica

    @contextmanager
    def timed(self, call: str) -> Iterator[None]:
        """Record the time that the program spends in a call."""
        started_ns = time.perf_counter_ns()
        try:
            yield
        finally:
            self.metrics.called(call, time.perf_counter_ns() - started_ns)

    def send(self, requests: Iterable[Outgoing]) -> None:
        """Queue requests."""
        for request in requests:
            self._send(request)

    def _send(self, request: Outgoing) -> None:
        name, sent_ms = api_keys.by_key(request.message.API_KEY or 0).name, self.network.now_ms()
        self.metrics.asked(name, sent_ms)

        def done(answer: Message | ApiError) -> None:
            self.answers += 1
            now_ms = self.network.now_ms()
            if not isinstance(answer, ApiError):
                is_good = not getattr(answer, "error_code", 0)
                has_assignment = getattr(answer, "assignment", None) is not None and name == "ConsumerGroupHeartbeat"
                throttle_ms = getattr(answer, "throttle_time_ms", 0)
                self.metrics.answered(name, now_ms - sent_ms, throttle_ms, is_good=is_good, has_assignment=has_assignment)
                if name == "Fetch":
                    self._network_metrics.node(request.node.id).latency.record(now_ms - sent_ms, now_ms)
            request.answered(answer, now_ms)

        self.network.send(request.node, request.message, done, versions=request.versions, timeout_ms=request.timeout_ms)

    def reason(self) -> str:
        """Return why the cluster has not answered yet, or an empty text."""
        if self.network.has_answer:
            return self.core.coordinator.why
        nodes = self.core.metadata.cluster.nodes.values()
        return "; ".join(f"no answer from {node.address}: {self.network.reason(node)}" for node in nodes)

    def late(self, what: str, timeout: float | None) -> KafkaTimeoutError:
        """Return the error of a call that was not answered in time."""
        waited_ms = self.options.api_timeout_ms if timeout is None else int(timeout * 1000)
        reason = self.reason()
        text = f"{what}: not known after {waited_ms} ms"
        return KafkaTimeoutError(f"{text}: {reason}" if reason else text)

    # code of the program

    def intercept(self, records: ConsumerRecords) -> ConsumerRecords:
        """Let interceptors change the records of a poll. One that fails is logged and skipped."""
        for one in self.interceptors:
            changed = self.shielded(one.on_consume, records, what="an interceptor (on_consume)")
            if changed is not None and changed is not records:
                records = ConsumerRecords(changed, records.runs)
        return records

    def committed(self, one: Committed) -> None:
        """Call the callback of a commit and the interceptors."""
        if one.error is None:
            for interceptor in self.interceptors:
                on_commit = getattr(interceptor, "on_commit", None)
                if on_commit is not None:
                    self.shielded(on_commit, one.offsets, what="an interceptor (on_commit)")
        elif one.callback is None:
            logger.error("%s: an asynchronous commit has failed: %s", self.client_id, one.error)
        if one.callback is not None:
            one.callback(one.offsets, one.error)

    def shielded(self, function: Callable[..., Any], *arguments: object, what: str) -> Any:
        """Call code that may fail without harm to the consumer. If it fails, log the error and return None."""
        return shielded(function, *arguments, what=f"{self.client_id}: {what}")

    def method_of(self, call: ListenerCall) -> Callable[[list[TopicPartition]], Any] | None:
        """Return the method of the program's listener. Without on_partitions_lost, on_partitions_revoked is called."""
        found = getattr(self.listener, call.method, None)
        if found is None and call.method == LOST:
            found = getattr(self.listener, REVOKED, None)
        method: Callable[[list[TopicPartition]], Any] | None = found
        return method

    def call_listener(self, call: ListenerCall) -> tuple[Any, KafkaError | None]:
        """Call the program's listener -> (what it returns, its error, which `poll` raises when the change is complete)."""
        method = self.method_of(call)
        started_ms = self.network.now_ms()
        try:
            result = None if method is None else method(list(call.keys))
            self.metrics.listened(call.method, self.network.now_ms() - started_ms)
            return result, None
        except Exception as failed:  # noqa: BLE001  # raised by poll
            return None, _listener_error(call, failed)

    async def await_listener(self, call: ListenerCall, result: Awaitable[Any]) -> KafkaError | None:
        """Wait for a listener that is a coroutine. Returns its error."""
        try:
            await result
        except Exception as failed:  # noqa: BLE001  # raised by poll
            return _listener_error(call, failed)
        return None

    def close_helpers(self) -> None:
        """Close deserializers and interceptors that have a method `close`."""
        values = self.options.values
        for one in (*self.interceptors, values["key.deserializer"], values["value.deserializer"]):
            close = None if one is None or isinstance(one, type | str) else getattr(one, "close", None)
            if callable(close):
                self.shielded(close, what="closing a helper")


def _listener_error(call: ListenerCall, failed: Exception) -> KafkaError:
    """Return the error for the program: the listener's own, if Kafka passes on such an error of this call, or a ListenerError."""
    if isinstance(failed, WakeupError) or (call.passes_on and isinstance(failed, KafkaError)):
        return failed
    return as_listener_error(failed, f"in {call.method}")


def as_listener_error(failed: Exception, where: str) -> ListenerError:
    """Return a ListenerError with this cause."""
    if isinstance(failed, ListenerError):
        return failed
    error = ListenerError(f"the rebalance listener has failed {where}: {failed!r}")
    error.__cause__ = failed
    return error


# arguments


def as_key(given: object) -> TopicPartition:
    """Return a partition that a program names. Raises UsageError."""
    if isinstance(given, tuple) and len(given) == 2:
        topic, partition = given
        if is_text(topic) and topic and isinstance(partition, int) and not isinstance(partition, bool) and partition >= 0:
            return TopicPartition(topic, partition)
    raise UsageError(f"{given!r} is not a partition; allowed: TopicPartition or a pair of a topic and a number from 0 up")


def as_keys(given: Iterable[object]) -> list[TopicPartition]:
    """Return the partitions that a program names, each once. Raises UsageError."""
    if isinstance(given, str) or (isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)):
        given = [given]
    return list(dict.fromkeys(map(as_key, given)))


def as_assigned(given: Iterable[object]) -> list[TopicPartition]:
    """Return the partitions that a program assigns, each once. Raises UsageError."""
    keys = as_keys(given)
    for key in keys:
        if not key.topic.strip():
            raise UsageError(f"{key.topic!r} is not the name of a topic")
    return keys


def listed(keys: Collection[TopicPartition]) -> str:
    """Return the names of partitions for a message: the first three, and how many there are."""
    names = ", ".join(f"{topic}-{partition}" for topic, partition in itertools.islice(keys, 3))
    return names if len(keys) <= 3 else f"{names} and {len(keys) - 3} more"


def as_topics(given: object) -> list[str] | re.Pattern[str] | SubscriptionPattern:
    """Return the topics or the pattern of a subscription. Raises UsageError."""
    if isinstance(given, re.Pattern | SubscriptionPattern):
        return given
    if isinstance(given, str):
        given = [given]
    if not isinstance(given, Iterable):
        raise UsageError(f"{given!r} is not a list of topics; allowed: names of topics, a pattern of re.compile, or SubscriptionPattern")
    topics = list(given)
    for topic in topics:
        if not is_text(topic) or not topic.strip():
            raise UsageError(f"{topic!r} is not the name of a topic")
    return topics


def as_offsets(given: Mapping[Key, object] | None) -> dict[TopicPartition, OffsetAndMetadata] | None:
    """Return the offsets that a program commits. Raises UsageError."""
    if given is None:
        return None
    if not isinstance(given, Mapping):
        raise UsageError(f"{given!r} are not offsets; allowed: a mapping of partitions to offsets")
    return {as_key(key): as_offset(one) for key, one in given.items()}


def as_time(given: object) -> int:
    """Return a time in ms since the epoch. Raises UsageError."""
    if not isinstance(given, int) or isinstance(given, bool) or not 0 <= given < 1 << 63:
        raise UsageError(f"timestamp={given!r}: not allowed; allowed: ms since the epoch, 0 to 2^63 - 1")
    return given


def as_membership(given: GroupMembership | str) -> GroupMembership:
    """Return what to do with the membership at the end. Raises UsageError."""
    try:
        return GroupMembership(given)
    except ValueError:
        raise UsageError(f"membership={given!r}: not allowed; allowed: default, leave, remain") from None


def check_listener(listener: object) -> None:
    """Raise UsageError for a listener without any of the methods."""
    if listener is not None and not any(callable(getattr(listener, name, None)) for name in _METHODS):
        raise UsageError(f"{listener!r} is no rebalance listener; it has none of {', '.join(_METHODS)}")


def _as_list(value: object) -> list[object]:
    return list(value) if isinstance(value, list | tuple) else []


def _instance(setting: str, one: object) -> Any:
    if isinstance(one, str):
        raise UsageError(f"{setting}={one}: the name of a class; allowed: classes and objects of Python")
    return one() if isinstance(one, type) else one


def _assignors(given: list[object]) -> list[Assignor]:
    found: list[Assignor] = []
    for one in given:
        found += make_assignors([one]) if isinstance(one, str) else [_instance("partition.assignment.strategy", one)]
    return found
