"""Share sessions compared with Kafka's SharePartitionManager, ShareSessionCache and contexts: random requests, results and closed
connections.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from kops.coordinators.share.sessions.contexts import FetchRequest, new_context, on_acknowledge
from kops.coordinators.share.sessions.dividing import max_bytes, rotated
from kops.coordinators.share.sessions.session import SessionKey, TopicIdPartition
from kops.coordinators.share.sessions.session_cache import ShareSessionCache
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.messages.share_fetch_response import PartitionData
from kops.protocol.primitives import size_of
from tests.support.kafka.manual_jvm import ManualClock, named
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.twins.java_coordinators import KAFKA, JavaCoordinators

NOW_MS = 1_700_000_000_000
PARTS = [
    TopicIdPartition(bytes([topic] * 16), partition, f"t{topic}" if topic < 3 else None) for topic in (1, 2, 3) for partition in range(2)
]
KEYS = [SessionKey(group, member) for group in ("g", "h") for member in ("m1", "m2")]
CACHE_SIZE = 3


class Twins:
    """Both caches, which get the same requests."""

    def __init__(self, oracle: Oracle) -> None:
        self.java = java = JavaCoordinators(oracle)
        self.oracle = oracle
        self.ours = ShareSessionCache(CACHE_SIZE)
        self.ours.on_member_left = self.ours.remove
        self.theirs = java.make("server.share.session.ShareSessionCache", CACHE_SIZE)
        manager = named(oracle, "kafka.server.share.SharePartitionManager")
        constructor = next(each for each in manager.getDeclaredConstructors() if each.getParameterCount() == 13)
        constructor.setAccessible(True)
        arguments = oracle.gateway.new_array(oracle.jvm.java.lang.Object, 13)
        make_cache = named(oracle, "kafka.server.share.SharePartitionCache").getDeclaredConstructors()[0]
        make_cache.setAccessible(True)
        partitions = make_cache.newInstance(oracle.gateway.new_array(oracle.jvm.java.lang.Object, 0))
        values = [None, ManualClock(oracle, NOW_MS).time, self.theirs, partitions, 1000, None, 5, 200, java.long(0)]
        for index, value in enumerate(values):
            arguments[index] = value
        self.manager = constructor.newInstance(arguments)

    def part(self, part: TopicIdPartition) -> Any:
        key = self.java.make("common.TopicPartition", part.topic, part.partition)
        return self.java.make("common.TopicIdPartition", self.java.uuid(part.topic_id), key)

    def parts(self, parts: Sequence[TopicIdPartition]) -> Any:
        return self.oracle.jvm.java.util.ArrayList([self.part(part) for part in parts])

    def error(self, caught: Py4JJavaError) -> str:
        return errors.by_exception(str(caught.java_exception.getClass().getName())).name

    def fetch(self, rng: random.Random, request: FetchRequest) -> str:
        """Send a ShareFetch, with its results."""
        try:
            arguments = self.parts(request.wanted), self.parts(request.forgotten), request.key.member_id, request.epoch
            has_acknowledgements = self.oracle.jvm.java.lang.Boolean.valueOf(str(request.has_acknowledgements).lower())
            theirs = self.manager.newContext(request.key.group_id, *arguments, has_acknowledgements, request.connection_id)
        except Py4JJavaError as caught:
            expected = self.error(caught)
            try:
                new_context(self.ours, request)
            except ApiError as error:
                assert error.name == expected
                return expected
            raise
        ours = new_context(self.ours, request)
        fetched, real = ours.fetch_parts(), theirs.getErroneousAndValidTopicIdPartitions()
        assert [str(self.part(part).toString()) for part in fetched.known] == [
            str(each.toString()) for each in real.validTopicIdPartitions()
        ]
        assert {str(self.part(part).toString()) for part in fetched.unknown} == {str(each.toString()) for each in real.erroneous().keySet()}
        results, updates = {}, self.oracle.jvm.java.util.LinkedHashMap()
        for part in (*fetched.known, *fetched.unknown):
            results[part] = PartitionData(part.partition, rng.choice((0, 0, 0, 6)), records=b"x" * 60 if rng.random() < 0.3 else b"")
            updates.put(self.part(part), self.result(results[part]))
        if rng.random() < 0.1 and request.epoch > 0:
            self.acknowledge(request.key, request.epoch + 1)
        expected = theirs.updateAndGenerateResponseData(request.key.group_id, request.key.member_id, updates).data()
        shown = [
            (topic.topicId().toString(), each.partitionIndex(), each.errorCode())
            for topic in expected.responses().toArray()
            for each in topic.partitions()
        ]
        response = ours.respond(results)
        found = [
            (self.java.uuid(topic.topic_id).toString(), each.partition_index, each.error_code)
            for topic in response.responses
            for each in topic.partitions
        ]
        assert (found, response.error_code) == (shown, expected.errorCode())
        return f"{errors.by_code(response.error_code).name} {len(found) < len(results)}"

    def result(self, result: PartitionData) -> Any:
        made = self.oracle.java_class(f"{KAFKA}common.message.ShareFetchResponseData$PartitionData")()
        records = self.oracle.java_class(f"{KAFKA}common.record.internal.MemoryRecords").readableRecords(
            self.java.wrap(b"x" * size_of(result.records or b""))
        )
        return made.setPartitionIndex(result.partition_index).setErrorCode(self.java.short(result.error_code)).setRecords(records)

    def acknowledge(self, key: SessionKey, epoch: int) -> str:
        """Send a ShareAcknowledge."""
        found = expected = "NONE"
        try:
            self.manager.acknowledgeSessionUpdate(*key, epoch)
        except Py4JJavaError as caught:
            expected = self.error(caught)
        try:
            on_acknowledge(self.ours, key, epoch)
        except ApiError as error:
            found = error.name
        assert found == expected
        return f"acknowledge {found}"

    def check(self) -> dict[SessionKey, int]:
        """Check that both have the same sessions, and return their epochs."""
        epochs = {}
        key_class = self.oracle.java_class(f"{KAFKA}server.share.session.ShareSessionKey")
        for key in KEYS:
            ours, theirs = self.ours.get(key), self.theirs.get(key_class(*key))
            assert (ours is None) == (theirs is None)
            if ours is not None:
                epochs[key] = ours.epoch
                assert (ours.epoch, len(ours)) == (theirs.epoch(), theirs.size())
        assert (len(self.ours), self.ours.partition_count) == (self.theirs.size(), self.theirs.totalPartitions())
        return epochs


def test_random_sessions(oracle: Oracle) -> None:
    """Each request gets the same context or error and the same answer, and the same sessions are left."""
    twins, rng = Twins(oracle), random.Random(4)
    seen: Counter[str] = Counter()
    epochs: dict[SessionKey, int] = {}
    for _ in range(110):
        key = rng.choice(KEYS)
        epoch = epochs.get(key, 0) if rng.random() < 0.9 else rng.choice((-1, 0, 0, 1, 2**31 - 1))
        connection_id = f"{key.member_id}-{rng.randrange(2)}"
        chosen = rng.random()
        if chosen < 0.7:
            wanted = rng.sample(PARTS, rng.randrange(1, 4) if epoch <= 0 else rng.randrange(2))
            forgotten = rng.sample(PARTS, rng.randrange(2))
            seen[twins.fetch(rng, FetchRequest(key, epoch, wanted, forgotten, rng.random() < 0.05, connection_id))] += 1
        elif chosen < 0.9:
            seen[twins.acknowledge(key, epoch)] += 1
        else:
            twins.theirs.connectionDisconnectListener().onDisconnect(connection_id)
            twins.ours.on_disconnect(connection_id)
        epochs = twins.check()
    wanted_outcomes = {"NONE True", "NONE False", "SHARE_SESSION_LIMIT_REACHED", "SHARE_SESSION_NOT_FOUND", "INVALID_SHARE_SESSION_EPOCH"}
    assert wanted_outcomes | {"acknowledge NONE", "acknowledge INVALID_SHARE_SESSION_EPOCH"} <= set(seen), seen


def test_dividing(oracle: Oracle) -> None:
    """Both choose the same first partition, and give each the same number of bytes."""
    twins, rng = Twins(oracle), random.Random(5)
    package = f"{KAFKA}server.share.fetch."
    rotate = oracle.java_class(f"{package}PartitionRotateStrategy")
    metadata = oracle.java_class(f"{package}PartitionRotateStrategy$PartitionRotateMetadata")
    kinds = oracle.java_class(f"{package}PartitionMaxBytesStrategy$StrategyType")
    strategy = oracle.java_class(f"{package}PartitionMaxBytesStrategy").type(kinds.UNIFORM)
    for _ in range(20):
        parts = rng.sample(PARTS, rng.randrange(1, 6))
        epoch = rng.choice((-1, 0, 1, 2, 7))
        theirs = rotate.rotateRoundRobin(twins.parts(parts), metadata(epoch))
        assert [str(each.toString()) for each in theirs] == [str(twins.part(part).toString()) for part in rotated(parts, epoch)]
        total, acquired_count = rng.choice((1, 2, 3, 10, 17, 1000)), len(parts) + rng.randrange(3)
        found = oracle.jvm.java.util.LinkedHashSet(twins.parts(parts))
        expected = strategy.maxBytes(total, found, acquired_count)
        ours = max_bytes(total, parts, acquired_count, rng.randrange)
        assert sorted(ours.values()) == sorted(expected.values())
