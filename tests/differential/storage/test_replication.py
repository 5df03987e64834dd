"""Fetch sessions of both sides, fetcher numbers and the throttle's rate against Kafka's own classes, on random lives."""

from __future__ import annotations

import base64
import random
from typing import Any

from kops.protocol import errors
from kops.protocol.messages.fetch_response import FetchResponse, PartitionData
from kops.records.log_offsets import TopicPartition
from kops.replication.following.fetch_session_handler import FetchSessionHandler
from kops.replication.following.fetcher_manager import fetcher_number
from kops.replication.leading.fetch import FetchInfo
from kops.replication.leading.fetch_context import FetchManager, fetch_response
from kops.replication.leading.fetch_session import INITIAL, FetchMetadata, FetchSessionCache, TopicIdPartition
from kops.replication.quota import ReplicationQuotaManager
from tests.support.kafka.manual_jvm import ManualClock
from tests.support.kafka.oracle import Oracle

NOW_MS = 1_700_000_000_000
IDS = {"orders": bytes(range(16)), "payments": bytes(range(1, 17)), "stock": bytes(range(2, 18))}
KAFKA = "org.apache.kafka."


class Java:
    """Values of the Java side."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.optional = oracle.java_class("java.util.Optional")

    def make(self, name: str, *args: Any) -> Any:
        return self.oracle.java_class(KAFKA + name)(*args)

    def uuid(self, value: bytes) -> Any:
        return self.oracle.java_class(KAFKA + "common.Uuid").fromString(base64.urlsafe_b64encode(value).decode().rstrip("="))

    def part(self, key: TopicPartition) -> Any:
        return self.make("common.TopicPartition", key.topic, key.partition)

    def id_part(self, part: TopicIdPartition) -> Any:
        return self.make("common.TopicIdPartition", self.uuid(part.topic_id), part.partition, part.topic)

    def short(self, value: int) -> Any:
        return self.oracle.java_class("java.lang.Short").valueOf(str(value))

    def info(self, info: FetchInfo) -> Any:
        data = self.oracle.java_class(KAFKA + "common.requests.FetchRequest$PartitionData")
        epochs = [self.optional.of(info.current_leader_epoch), self.optional.of(info.last_fetched_epoch)]
        return data(self.uuid(info.topic_id), info.fetch_offset, info.log_start_offset, info.max_bytes, *epochs)

    def row(self, data: PartitionData) -> Any:
        made = self.oracle.java_class(KAFKA + "common.message.FetchResponseData$PartitionData")()
        made.setPartitionIndex(data.partition_index).setErrorCode(self.short(data.error_code)).setHighWatermark(data.high_watermark)
        return made.setLogStartOffset(data.log_start_offset).setPreferredReadReplica(data.preferred_read_replica)

    def error(self, code: int) -> Any:
        return self.oracle.java_class(KAFKA + "common.protocol.Errors").forCode(self.short(code))

    def response(self, code: int, session_id: int, rows: dict[TopicIdPartition, PartitionData], *, throttle_time_ms: int = 0) -> Any:
        updates = self.oracle.jvm.java.util.LinkedHashMap()
        for part, data in rows.items():
            updates.put(self.id_part(part), self.row(data))
        of = self.oracle.java_class(KAFKA + "common.requests.FetchResponse").of
        return of(self.error(code), throttle_time_ms, session_id, updates, self.oracle.jvm.java.util.List.of())


def drawn_row(rng: random.Random, partition: int) -> PartitionData:
    data = PartitionData(partition, high_watermark=rng.choice((10, 11)), log_start_offset=rng.choice((0, 0, 1)))
    data.error_code = rng.choice((0, 0, 0, 6))
    data.preferred_read_replica = rng.choice((-1, -1, -1, 2))
    return data


def drawn_parts(rng: random.Random, count: int) -> dict[TopicPartition, FetchInfo]:
    found = {}
    for _ in range(count):
        topic = rng.choice(list(IDS))
        topic_id = rng.choice((IDS[topic], IDS[topic], bytes(range(7, 23)))) if topic == "stock" else IDS[topic]
        found[TopicPartition(topic, rng.randrange(3))] = FetchInfo(rng.randrange(3), 0, 1000, 5, 4, topic_id)
    return found


def test_the_clients_side(oracle: Oracle) -> None:
    """Each request has the same contents, and each response changes the session in the same way."""
    java, rng = Java(oracle), random.Random(1)
    for _ in range(15):
        ours = FetchSessionHandler()
        theirs = java.make("clients.FetchSessionHandler", java.make("common.utils.LogContext"), 1)
        for _ in range(8):
            wanted = drawn_parts(rng, rng.randrange(1, 5))
            builder = theirs.newBuilder()
            for key, info in wanted.items():
                builder.add(java.part(key), java.info(info))
            asked, built = builder.build(), ours.build(wanted)
            shown = f"{built.metadata.session_id}/{built.metadata.epoch}"
            assert f"{asked.metadata().sessionId()}/{asked.metadata().epoch()}" == shown
            assert [str(key) for key in asked.toSend().keySet()] == [f"{key.topic}-{key.partition}" for key in built.to_send]
            assert [str(part.topicPartition()) for part in asked.toForget()] == [
                f"{part.topic}-{part.partition}" for part in built.to_forget
            ]
            assert [str(part.topicPartition()) for part in asked.toReplace()] == [
                f"{part.topic}-{part.partition}" for part in built.to_replace
            ]
            assert asked.canUseTopicIds() == built.can_use_topic_ids
            parts = [TopicIdPartition(info.topic_id, *key) for key, info in built.session_partitions.items()]
            if not built.metadata.is_full:
                parts = rng.sample(parts, rng.randrange(len(parts) + 1))
            if rng.random() < 0.1:
                parts.append(TopicIdPartition(IDS["orders"], "orders", 9))
            rows = {part: PartitionData(part.partition) for part in parts}
            code = rng.choice(
                [0] * 8 + [errors.by_name("FETCH_SESSION_ID_NOT_FOUND").code, errors.by_name("INVALID_FETCH_SESSION_EPOCH").code]
            )
            session_id = rng.choice((0, 77, 77, 77))
            expected = theirs.handleResponse(java.response(code, session_id, rows), java.short(18))
            response: FetchResponse = fetch_response(errors.by_code(code).name, session_id, rows)
            assert ours.handle_response(response, 18) == expected


def test_the_brokers_side(oracle: Oracle) -> None:
    """Each request gets the same error or context and the same answer, and the same sessions survive in a small cache."""
    java, rng = Java(oracle), random.Random(2)
    clock = ManualClock(oracle, NOW_MS)
    shards = oracle.jvm.java.util.List.of(java.make("server.FetchSessionCacheShard", 3, 1_000, 2**31 - 1, 0))
    cache = oracle.java_class(KAFKA + "server.FetchSession$FetchSessionCache")(shards)
    theirs = java.make("server.FetchManager", clock.time, cache)
    drawn: list[int] = []
    ours = FetchManager(FetchSessionCache(3, 1_000, drawn.pop), lambda: clock.now_ms)
    names = oracle.jvm.java.util.HashMap()
    for topic, topic_id in IDS.items():
        names.put(java.uuid(topic_id), topic)
    sessions: list[FetchMetadata] = []
    outcomes: dict[str, int] = {}
    for _ in range(150):
        clock.now_ms += rng.choice((0, 10, 600, 1_100))
        metadata = rng.choice([INITIAL, *sessions, *sessions]) if rng.random() < 0.9 else FetchMetadata(5, 5)
        wanted = {
            TopicIdPartition(IDS[key.topic], *key): info for key, info in drawn_parts(rng, rng.randrange(3) + metadata.is_full).items()
        }
        forget = [TopicIdPartition(IDS["orders"], "orders", rng.randrange(3))] if rng.random() < 0.2 else []
        is_follower = rng.random() < 0.5
        data = oracle.jvm.java.util.LinkedHashMap()
        for part, info in wanted.items():
            data.put(java.id_part(part), java.info(info))
        asked = java.make("common.requests.FetchMetadata", metadata.session_id, metadata.epoch)
        context = theirs.newContext(java.short(18), asked, is_follower, data, [java.id_part(part) for part in forget], names)
        mine = ours.new_context(18, metadata, wanted, forget, {IDS[topic]: topic for topic in IDS}.get, is_from_follower=is_follower)
        rows = {part: drawn_row(rng, part.partition) for part, _ in mine.partitions()}
        updates = oracle.jvm.java.util.LinkedHashMap()
        for part, row in rows.items():
            updates.put(java.id_part(part), java.row(row))
        expected = context.updateAndGenerateResponseData(updates, oracle.jvm.java.util.List.of()).data()
        drawn[:] = [expected.sessionId()]
        answer = mine.respond(rows)
        found = [(topic.topic, each.partition_index) for topic in answer.responses for each in topic.partitions]
        assert found == [(topic.topic(), each.partitionIndex()) for topic in expected.responses() for each in topic.partitions()]
        assert (answer.error_code, answer.session_id) == (expected.errorCode(), expected.sessionId())
        outcome = f"{type(mine).__name__} {errors.by_code(answer.error_code).name} {answer.session_id != 0}"
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        sessions = [each for each in sessions if each != metadata]
        if answer.session_id:
            sessions.append(FetchMetadata(answer.session_id, 1) if metadata.is_full else metadata.next_incremental())
    assert len(outcomes) >= 5, outcomes


def test_the_throttles_rate(oracle: Oracle) -> None:
    """The quota is exceeded at the same times of a random life."""
    java, rng = Java(oracle), random.Random(3)
    clock = ManualClock(oracle, NOW_MS)
    quotas = oracle.java_class(KAFKA + "common.metrics.Quota")
    kinds = oracle.java_class(KAFKA + "server.quota.QuotaType")
    metrics = java.make("common.metrics.Metrics", clock.time)
    config = java.make("server.config.ReplicationQuotaManagerConfig", 4, 1)
    theirs = oracle.java_class("kafka.server.ReplicationQuotaManager")(config, metrics, kinds.FOLLOWER_REPLICATION, clock.time)
    ours = ReplicationQuotaManager(lambda: clock.now_ms, sample_count=4, window_ms=1_000)
    theirs.updateQuota(quotas.upperBound(1_000.0))
    ours.update_quota(1_000)
    seen = set()
    for _ in range(200):
        clock.now_ms += rng.choice((0, 1, 300, 1_000, 1_700, 5_000))
        if rng.random() < 0.7:
            size = rng.choice((100, 900, 2_500))
            theirs.record(size)
            ours.record(size)
        assert ours.is_quota_exceeded == theirs.isQuotaExceeded()
        seen.add(ours.is_quota_exceeded)
    assert seen == {True, False}


def test_fetcher_numbers(oracle: Oracle) -> None:
    """The formula agrees, with Java's overflow."""
    utils, objects = oracle.java_class(KAFKA + "common.utils.Utils"), oracle.java_class("java.util.Objects")
    for topic in ("orders", "payments", "a" * 40, "ä-topic"):
        for partition in (0, 1, 7, 2**20):
            value = 31 * objects.hashCode(topic) + partition
            wrapped = (value + 2**31) % 2**32 - 2**31
            assert fetcher_number(TopicPartition(topic, partition), 5) == utils.abs(wrapped) % 5
