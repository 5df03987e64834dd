"""The producer's core against scripted brokers: when it sends what, its reaction to every answer, and the result of each record."""

from __future__ import annotations

import pytest

from kops.client.errors import (
    BatchRejectedError,
    BufferExhaustedError,
    InvalidRecordError,
    KafkaError,
    KafkaTimeoutError,
    ProducerClosedError,
    RecordTooLargeError,
    TopicAuthorizationError,
)
from kops.client.producer.core._hot_records import Delivery
from kops.client.producer.core.producer import Step
from kops.errors import ApiError, UsageError
from kops.protocol.errors import by_name
from kops.protocol.messages import InitProducerIdRequest, InitProducerIdResponse, MetadataRequest, MetadataResponse, ProduceRequest
from kops.protocol.messages.metadata_response import MetadataResponseBroker, MetadataResponseTopic
from kops.protocol.messages.produce_response import BatchIndexAndErrorMessage, LeaderIdAndEpoch, NodeEndpoint
from tests.support.producers import Dialogue, batch_of, batches_of, refused, response, values_of, written

PLAIN: dict[str, object] = {"enable.idempotence": False}

pytestmark = pytest.mark.hot


def produce(talk: Dialogue, after_ms: float = 5) -> list[object]:
    return list(talk.requests(ProduceRequest, after_ms=after_ms))


class TestWhen:
    def test_a_batch_waits_for_linger(self) -> None:
        talk = Dialogue({"linger.ms": 20})
        delivery = talk.send("a")
        assert not talk.requests()
        assert talk.wait_ms == 20
        assert not talk.requests(after_ms=19)
        (request,) = talk.requests(after_ms=1)
        assert not delivery.done()
        talk.answer(request, written(request, 7))
        assert delivery.done()
        assert delivery.metadata() == ("a", 0, 7, 0, -1, 1)

    def test_a_new_batch_wakes_a_sender_that_would_look_too_late(self) -> None:
        talk = Dialogue({"linger.ms": 20, "batch.size": 200}, topics={"a": [1, 1, 1, 1], "b": [-1]})
        assert talk.core.advance(talk.entry("a", partition=0), talk.now_ms) is Step.WAKES
        talk.turn()
        talk.now_ms += 5
        assert talk.core.advance(talk.entry("a", partition=1), talk.now_ms) is Step.APPENDED  # it will look after 15 ms
        assert talk.core.advance(talk.entry("a", b"x" * 130, partition=1), talk.now_ms) is Step.WAKES  # the first is full
        assert talk.core.advance(talk.entry("b"), talk.now_ms) is Step.WAKES  # nobody leads, so metadata is needed
        talk.core.begin_flush()
        assert talk.core.advance(talk.entry("a", partition=2), talk.now_ms) is Step.WAKES
        talk.core.end_flush()
        (request,) = talk.requests(after_ms=15)
        assert len(batches_of(request)) == 3  # one that is due takes the others of its node along
        talk.topics["b"] = [1]
        assert len(talk.requests(after_ms=100)) == 2
        assert talk.core.advance(talk.entry("a", partition=3), talk.now_ms) is Step.WAKES  # it looks when something happens

    def test_a_record_that_needs_no_wait_is_appended_at_once(self) -> None:
        quick, slow = (Dialogue({"linger.ms": 20, "batch.size": 300}, topics={"a": [1, 1, 1]}) for _ in range(2))
        for index in range(30):
            key, value = (None if index % 3 else b"%d" % index), b"x" * (13 * index)
            delivery, entry = Delivery(), slow.entry("a", value, key)
            wakes = quick.core.advance_at_once("a", 0, key, value, delivery, quick.now_ms)
            assert wakes is (slow.core.advance(entry, slow.now_ms) is Step.WAKES)
            assert (delivery.place, delivery.index) == (entry.delivery.place, entry.delivery.index)
            assert (delivery.timestamp, delivery.key_size, delivery.value_size) == (0, -1 if key is None else len(key), len(value))
        for _ in range(4):
            first, second = ([batches_of(one) for one in talk.requests(after_ms=20)] for talk in (quick, slow))
            assert [{key: bytes(batch.data()) for key, batch in one.items()} for one in first] == [
                {key: bytes(batch.data()) for key, batch in one.items()} for one in second
            ]

    def test_what_is_not_appended_at_once(self) -> None:
        talk = Dialogue({"batch.size": 300, "buffer.memory": 500, "max.request.size": 400})
        core = talk.core
        assert core.advance_at_once("new", 0, None, b"v", Delivery(), talk.now_ms) is None
        assert core.advance_at_once("a", 0, None, b"v" * 400, Delivery(), talk.now_ms) is None  # too large
        core.metadata.cluster.topic_errors["a"] = "TOPIC_AUTHORIZATION_FAILED"
        assert core.advance_at_once("a", 0, None, b"v", Delivery(), talk.now_ms) is None
        core.metadata.cluster.topic_errors.clear()
        assert core.advance_at_once("a", 0, None, b"v", Delivery(), talk.now_ms) is True
        assert core.advance_at_once("a", 0, None, b"v" * 290, Delivery(), talk.now_ms) is None  # no memory
        core.close()
        assert core.advance_at_once("a", 0, None, b"v", Delivery(), talk.now_ms) is None

    def test_a_full_batch_goes_at_once(self) -> None:
        talk = Dialogue({"linger.ms": 1000, "batch.size": 200})
        for _ in range(3):
            talk.send("a", b"x" * 60)
        (request,) = talk.requests()
        assert len(values_of(request)) == 2
        assert not talk.requests()

    def test_a_flush_and_a_close_wait_for_nothing(self) -> None:
        for end in ("begin_flush", "close"):
            talk = Dialogue({"linger.ms": 1000})
            talk.send("a")
            getattr(talk.core, end)()
            assert len(talk.requests()) == 1

    def test_whoever_waits_for_memory_hurries_all(self) -> None:
        talk = Dialogue({"linger.ms": 1000, "batch.size": 300, "buffer.memory": 500})
        talk.send("a")
        entry = talk.entry("a", b"y" * 290)
        assert talk.core.advance(entry, talk.now_ms) is Step.MEMORY
        (request,) = talk.requests()
        assert talk.core.advance(entry, talk.now_ms) is Step.MEMORY
        talk.answer(request, written(request))
        assert entry.memory is not None
        assert entry.memory.is_granted
        assert talk.core.advance(entry, talk.now_ms) is Step.WAKES
        pool = talk.core.accumulator.pool
        assert pool.available == 500 - entry.memory.size

    def test_memory_that_does_not_come(self) -> None:
        talk = Dialogue({"batch.size": 300, "buffer.memory": 500})
        talk.send("a")
        entry = talk.entry("a", b"y" * 290)
        assert talk.core.advance(entry, talk.now_ms) is Step.MEMORY
        error = talk.core.exhausted(entry)
        assert isinstance(error, BufferExhaustedError)
        assert "buffer.memory=500" in str(error)
        assert talk.core.accumulator.pool.available == 200
        assert not talk.core.accumulator.pool.waiters

    def test_memory_of_a_record_that_fails_is_given_back(self) -> None:
        for end in ("close", "fail"):
            talk = Dialogue({"batch.size": 300, "buffer.memory": 500, "linger.ms": 0})
            talk.send("a")
            entry = talk.entry("a", b"y" * 290)
            assert talk.core.advance(entry, talk.now_ms) is Step.MEMORY
            (request,) = talk.requests()
            talk.answer(request, written(request))
            if end == "close":
                talk.core.close()
            else:
                talk.core.metadata.cluster.topic_errors["a"] = "INVALID_TOPIC_EXCEPTION"
            with pytest.raises(KafkaError):
                talk.core.advance(entry, talk.now_ms)
            assert talk.core.accumulator.pool.available == 500

    def test_memory_comes_in_order(self) -> None:
        talk = Dialogue({"batch.size": 400, "buffer.memory": 500, "linger.ms": 0})
        talk.send("a")
        waiting = [talk.entry("a", b"y" * 390) for _ in range(3)]
        for entry in waiting:
            assert talk.core.advance(entry, talk.now_ms) is Step.MEMORY
        for turn in range(3):
            (request,) = talk.requests()
            talk.answer(request, written(request))
            granted = [entry.memory is not None and entry.memory.is_granted for entry in waiting]
            assert granted == [True] * (turn + 1) + [False] * (2 - turn)
            assert talk.core.advance(waiting[turn], talk.now_ms) is Step.WAKES

    def test_each_node_gets_one_request_with_a_batch_of_each_partition(self) -> None:
        talk = Dialogue(topics={"a": [1, 2, 1], "b": [2]})
        for topic, count in (("a", 3), ("b", 1)):
            for index in range(count):
                talk.send(topic, partition=index)
        sent = {one.node.id: sorted(batches_of(one)) for one in talk.requests(after_ms=5)}
        assert sent == {1: [("a", 0), ("a", 2)], 2: [("a", 1), ("b", 0)]}

    def test_a_request_is_not_too_large_and_the_rest_comes_first_next_time(self) -> None:
        talk = Dialogue({"max.request.size": 400, "max.in.flight.requests.per.connection": 1}, topics={"a": [1, 1, 1]})
        for index in range(3):
            talk.send("a", b"x" * 150, partition=index)
        (first,) = talk.requests(after_ms=5)
        assert sorted(batches_of(first)) == [("a", 0)]
        talk.answer(first, written(first))
        talk.send("a", b"x" * 150, partition=0)
        (second,) = talk.requests(after_ms=5)
        assert sorted(batches_of(second)) == [("a", 1)]

    def test_in_flight_requests_are_limited(self) -> None:
        talk = Dialogue({"max.in.flight.requests.per.connection": 2, "linger.ms": 0})
        requests = []
        for _ in range(4):
            talk.send("a")
            requests += talk.requests()
        assert len(requests) == 2
        talk.answer(requests[0], written(requests[0]))
        (third,) = talk.requests()
        assert values_of(third) == [b"v", b"v"]

    def test_one_in_flight_keeps_the_order(self) -> None:
        talk = Dialogue({**PLAIN, "max.in.flight.requests.per.connection": 1, "linger.ms": 0})
        talk.send("a", b"1")
        (first,) = talk.requests()
        talk.send("a", b"2")
        assert not talk.requests()
        talk.answer(first, refused(first, "NOT_ENOUGH_REPLICAS"))
        (again,) = talk.requests(after_ms=200)
        assert values_of(again) == [b"1"]

    def test_a_node_that_is_not_connected_gets_nothing(self) -> None:
        talk = Dialogue({"linger.ms": 0}, topics={"a": [1, 2]})
        talk.links.down = {2}
        talk.send("a", partition=0)
        talk.send("a", partition=1)
        (request,) = talk.requests()
        assert request.node.id == 1
        talk.links.down = set()
        (request,) = talk.requests()
        assert request.node.id == 2

    def test_a_throttled_node_is_left_alone(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        talk.send("a")
        (request,) = talk.requests()
        talk.answer(request, written(request, throttle_time_ms=300))
        talk.send("a")
        assert not talk.requests(after_ms=299)
        assert talk.wait_ms <= 1
        assert len(talk.requests(after_ms=1)) == 1


class TestMetadata:
    def test_a_new_topic_is_asked_for_alone_and_at_once(self) -> None:
        talk = Dialogue(topics={"a": [1], "b": [1]}, is_known=False)
        entry = talk.entry("a")
        assert talk.core.advance(entry, talk.now_ms) is Step.METADATA
        (first,) = talk.requests(MetadataRequest)
        assert [one.name for one in first.message.topics] == ["a"]  # type: ignore[attr-defined]
        talk.answer(first, talk.metadata(first.message))  # type: ignore[arg-type]
        assert talk.core.advance(entry, talk.now_ms) is Step.WAKES
        assert talk.core.advance(talk.entry("b"), talk.now_ms) is Step.METADATA
        (second,) = talk.requests(MetadataRequest)
        assert [one.name for one in second.message.topics] == ["b"]  # type: ignore[attr-defined]

    def test_a_missing_topic_is_asked_for_again_with_pauses_and_then_is_late(self) -> None:
        talk = Dialogue(is_known=False, topics={"z": [1]})
        entry = talk.entry("nope")
        asked = 0
        for _ in range(200):
            if talk.core.advance(entry, talk.now_ms) is Step.METADATA:
                for one in talk.requests(MetadataRequest, after_ms=10):
                    asked += 1
                    talk.answer(one, talk.metadata(one.message))  # type: ignore[arg-type]
        assert 3 <= asked <= 6  # 100, 200, 400, 800 ms
        error = talk.core.late("nope", None)
        assert str(error) == "topic nope is not in the metadata after 60000 ms: nope: this broker has no such topic or partition"
        assert error.retriable

    def test_a_partition_that_is_not_there(self) -> None:
        talk = Dialogue()
        assert talk.core.advance(talk.entry("a", partition=1), talk.now_ms) is Step.METADATA
        assert str(talk.core.late("a", 1)) == "partition 1 of topic a, which has 1, is not in the metadata after 60000 ms"
        talk.topics["a"] = [1, 2]
        talk.requests(after_ms=100)
        talk.send("a", partition=1)

    def test_a_topic_that_is_not_allowed_fails_at_once(self) -> None:
        talk = Dialogue(is_known=False)
        entry = talk.entry("secret")
        assert talk.core.advance(entry, talk.now_ms) is Step.METADATA
        (request,) = talk.requests(MetadataRequest)
        topics = [MetadataResponseTopic(error_code=29, name="secret")]
        brokers = [MetadataResponseBroker(node_id=1, host="b1", port=1)]
        talk.answer(request, MetadataResponse(brokers=brokers, topics=topics))
        with pytest.raises(TopicAuthorizationError):
            talk.core.advance(entry, talk.now_ms)

    def test_metadata_is_asked_for_when_it_is_old_and_forgets_unused_topics(self) -> None:
        talk = Dialogue({"metadata.max.age.ms": 10_000, "metadata.max.idle.ms": 15_000}, topics={"a": [1], "b": [1]})
        talk.now_ms += 6000
        talk.core.metadata.use("a", talk.now_ms)
        (request,) = talk.requests(MetadataRequest, after_ms=10_000)
        assert [one.name for one in request.message.topics] == ["a"]  # type: ignore[attr-defined]

    def test_a_partition_without_a_leader_asks_for_metadata_and_waits(self) -> None:
        talk = Dialogue({"linger.ms": 0}, topics={"a": [-1]})
        talk.send("a", partition=0)
        assert not talk.requests()
        talk.topics["a"] = [2]
        (request,) = talk.requests(after_ms=500)
        assert request.node.id == 2

    def test_a_leader_that_can_not_be_reached_is_asked_for_until_there_is_another(self) -> None:
        talk = Dialogue({"linger.ms": 0}, topics={"a": [1]})
        talk.send("a")
        talk.links.down = talk.links.failing = {1}
        asked = 0
        for _ in range(5):
            talk.turn(100)
            asked += talk.settle(MetadataRequest)
        assert asked >= 2
        talk.topics["a"], talk.epochs["a"] = [2], 1
        (request,) = talk.requests(after_ms=200)
        assert request.node.id == 2

    def test_back_to_the_bootstrap_servers(self) -> None:
        talk = Dialogue()
        talk.links.down = talk.links.failing = {1, 2}
        talk.core.metadata.want()
        (request,) = talk.requests(MetadataRequest, after_ms=200)
        assert request.node.host == "boot"


class TestErrors:
    @pytest.mark.parametrize("settings", [{}, PLAIN])
    @pytest.mark.parametrize(
        "error",
        ["NOT_ENOUGH_REPLICAS", "NOT_ENOUGH_REPLICAS_AFTER_APPEND", "NOT_LEADER_OR_FOLLOWER", "UNKNOWN_TOPIC_OR_PARTITION",
         "REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "KAFKA_STORAGE_ERROR", "CORRUPT_MESSAGE", "UNKNOWN_TOPIC_ID"],
    )  # fmt: skip
    def test_a_retriable_error_sends_the_same_batch_again(self, error: str, settings: dict[str, object]) -> None:
        talk = Dialogue({"linger.ms": 0, **settings})
        delivery = talk.send("a")
        (first,) = talk.requests()
        talk.answer(first, refused(first, error))
        assert not talk.requests(after_ms=99)
        (second,) = talk.requests(after_ms=1)
        assert batch_of(second).data() == batch_of(first).data()
        talk.answer(second, written(second, 3))
        assert delivery.metadata().offset == 3

    @pytest.mark.parametrize("error", ["REQUEST_TIMED_OUT", "NETWORK_EXCEPTION"])
    def test_a_lost_connection_too(self, error: str) -> None:
        talk = Dialogue({"linger.ms": 0})
        delivery = talk.send("a")
        (first,) = talk.requests()
        talk.answer(first, ApiError(error, "b1:9092: gone"))
        (second,) = talk.requests(after_ms=100)
        talk.answer(second, written(second))
        assert delivery.metadata().offset == 0

    @pytest.mark.parametrize(
        "error", ["TOPIC_AUTHORIZATION_FAILED", "INVALID_REQUIRED_ACKS", "RECORD_LIST_TOO_LARGE", "UNSUPPORTED_FOR_MESSAGE_FORMAT"]
    )
    def test_another_error_fails_the_records_and_the_next_batch_begins_an_epoch(self, error: str) -> None:
        talk = Dialogue({"linger.ms": 0})
        delivery = talk.send("a")
        (first,) = talk.requests()
        talk.answer(first, refused(first, error, error_message="because"))
        failed = delivery.exception()
        assert isinstance(failed, KafkaError)
        assert (failed.name, str(failed), failed.retriable) == (error, "because", False)
        talk.send("a")
        (second,) = talk.requests()
        assert (batch_of(second).producer_epoch, batch_of(second).base_sequence) == (1, 0)

    def test_retries_end(self) -> None:
        talk = Dialogue({**PLAIN, "linger.ms": 0, "retries": 1})
        delivery = talk.send("a")
        for _ in range(2):
            (request,) = talk.requests(after_ms=500)
            talk.answer(request, refused(request, "NOT_ENOUGH_REPLICAS"))
        assert isinstance(delivery.exception(), KafkaError)
        assert not talk.requests(after_ms=5000)

    def test_pauses_grow(self) -> None:
        talk = Dialogue({"linger.ms": 0, "retry.backoff.max.ms": 500})
        talk.send("a")
        pauses = []
        (request,) = talk.requests()
        for _ in range(5):
            talk.answer(request, refused(request, "NOT_ENOUGH_REPLICAS"))
            waited = 0
            while not (again := talk.requests(after_ms=10)):
                waited += 10
            request = again[0]
            pauses.append(waited + 10)
        assert pauses == [100, 200, 400, 500, 500]

    def test_a_new_leader_is_used_without_a_pause(self) -> None:
        talk = Dialogue({"linger.ms": 0}, topics={"a": [1], "b": [2]})
        talk.send("a")
        (first,) = talk.requests()
        leader = LeaderIdAndEpoch(leader_id=3, leader_epoch=5)
        endpoints = [NodeEndpoint(node_id=3, host="b3", port=9092)]
        talk.answer(first, refused(first, "NOT_LEADER_OR_FOLLOWER", current_leader=leader, node_endpoints=endpoints))
        talk.turn()
        (second,) = [one for one in talk.waiting if isinstance(one.message, ProduceRequest)]
        assert second.node == (3, "b3", 9092, None)

    def test_a_batch_expires_in_the_queue(self) -> None:
        talk = Dialogue({"linger.ms": 0, "delivery.timeout.ms": 40_000}, topics={"a": [-1]})
        delivery = talk.send("a", partition=0)
        talk.requests(after_ms=39_999)
        assert not delivery.done()
        talk.requests(after_ms=1)
        error = delivery.exception()
        assert isinstance(error, KafkaTimeoutError)
        assert str(error) == "1 record(s) for a-0 were not acknowledged within 40000 ms"
        assert talk.core.accumulator.pool.available == talk.core.accumulator.pool.total

    def test_a_batch_expires_in_flight_and_its_late_answer_changes_nothing(self) -> None:
        talk = Dialogue({"linger.ms": 0, "delivery.timeout.ms": 40_000})
        delivery = talk.send("a")
        (first,) = talk.requests()
        pool = talk.core.accumulator.pool
        talk.requests(after_ms=40_000)
        assert isinstance(delivery.exception(), KafkaTimeoutError)
        assert pool.available < pool.total, "the request still holds the bytes"
        talk.answer(first, written(first, 5))
        assert isinstance(delivery.exception(), KafkaTimeoutError)
        assert pool.available == pool.total
        assert len(talk.core.take_finished()) == 1

    def test_single_records_are_rejected(self) -> None:
        talk = Dialogue({"linger.ms": 1})
        deliveries = [talk.send("a") for _ in range(3)]
        (request,) = talk.requests(after_ms=1)
        bad = [BatchIndexAndErrorMessage(batch_index=1, batch_index_error_message="no key")]
        talk.answer(request, refused(request, "INVALID_RECORD", record_errors=bad))
        errors = [delivery.exception() for delivery in deliveries]
        assert [type(one) for one in errors] == [BatchRejectedError, InvalidRecordError, BatchRejectedError]
        assert str(errors[1]) == "no key"

    def test_an_answer_without_the_partition(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        delivery = talk.send("a")
        (request,) = talk.requests()
        whole = response(request)
        whole.responses = []
        talk.answer(request, whole)
        assert isinstance(delivery.exception(), KafkaError)

    def test_acks_0_has_no_offset(self) -> None:
        talk = Dialogue({"linger.ms": 0, "acks": "0"})
        delivery = talk.send("a")
        (request,) = talk.requests()
        assert not request.expects_response
        talk.answer(request, request.message)
        assert delivery.metadata().offset == -1

    def test_a_duplicate_is_a_success_without_an_offset(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        delivery = talk.send("a")
        (request,) = talk.requests()
        talk.answer(request, refused(request, "DUPLICATE_SEQUENCE_NUMBER"))
        assert delivery.metadata().offset == -1

    def test_the_brokers_time_is_that_of_the_record(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        delivery = talk.send("a", timestamp=5)
        (request,) = talk.requests()
        talk.answer(request, response(request, base_offset=1, log_append_time_ms=77))
        assert delivery.metadata().timestamp == 77


class TestSplit:
    @pytest.mark.parametrize("settings", [{}, PLAIN])
    def test_a_batch_that_is_too_large_becomes_smaller_ones(self, settings: dict[str, object]) -> None:
        talk = Dialogue({"linger.ms": 5, "batch.size": 1000, **settings})
        deliveries = [talk.send("a", b"%d" % index * 90, headers=(("h", b"w"),)) for index in range(9)]
        (request,) = talk.requests(after_ms=5)
        assert len(values_of(request)) == 9
        talk.answer(request, refused(request, "MESSAGE_TOO_LARGE"))
        (again,) = talk.requests()
        talk.answer(again, refused(again, "MESSAGE_TOO_LARGE"))  # it was not smaller, so now it is halved
        values, sequences, offset = [], [], 0
        while not all(delivery.done() for delivery in deliveries):
            (part,) = talk.requests(after_ms=5)
            values += values_of(part)
            sequences.append(batch_of(part).base_sequence)
            talk.answer(part, written(part, offset))
            offset += len(values_of(part))
        assert values == [b"%d" % index * 90 for index in range(9)]
        assert len(sequences) > 1
        assert [delivery.metadata().offset for delivery in deliveries] == list(range(9))
        assert sequences == ([-1] * len(sequences) if settings else sorted(sequences))
        assert talk.core.accumulator.pool.available == talk.core.accumulator.pool.total

    def test_a_single_record_that_is_too_large_fails(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        delivery = talk.send("a")
        (request,) = talk.requests()
        talk.answer(request, refused(request, "MESSAGE_TOO_LARGE"))
        assert isinstance(delivery.exception(), RecordTooLargeError)


class TestIdempotence:
    def test_the_id_is_asked_for_before_the_first_batch_and_again_after_an_error(self) -> None:
        talk = Dialogue({"linger.ms": 0}, is_known=False)
        talk.core.metadata.use("a", talk.now_ms)
        talk.turn()
        talk.settle(MetadataRequest)
        (init,) = talk.requests(InitProducerIdRequest)
        talk.send("a")
        assert not talk.requests()
        talk.answer(init, InitProducerIdResponse(error_code=by_name("COORDINATOR_LOAD_IN_PROGRESS").code))
        (init,) = talk.requests(InitProducerIdRequest, after_ms=100)
        talk.answer(init, InitProducerIdResponse(producer_id=7, producer_epoch=3))
        (request,) = talk.requests()
        batch = batch_of(request)
        assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (7, 3, 0)

    def test_an_id_that_is_not_allowed_fails_what_waits(self) -> None:
        talk = Dialogue({"linger.ms": 0}, is_known=False)
        talk.core.metadata.use("a", talk.now_ms)
        talk.turn()
        talk.settle(MetadataRequest)
        delivery = talk.send("a")
        (init,) = talk.requests(InitProducerIdRequest)
        talk.answer(init, InitProducerIdResponse(error_code=by_name("CLUSTER_AUTHORIZATION_FAILED").code))
        error = delivery.exception()
        assert isinstance(error, KafkaError)
        assert error.fatal

    def test_sequences_go_on_and_five_are_in_flight(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        requests = []
        for _ in range(5):
            talk.send("a")
            requests += talk.requests()
        assert [batch_of(one).base_sequence for one in requests] == [0, 1, 2, 3, 4]

    def test_later_batches_that_fail_behind_a_lost_one_come_back_in_order(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        requests = []
        for index in range(3):
            talk.send("a", b"%d" % index)
            requests += talk.requests()
        talk.answer(requests[1], refused(requests[1], "OUT_OF_ORDER_SEQUENCE_NUMBER"))
        talk.answer(requests[2], refused(requests[2], "OUT_OF_ORDER_SEQUENCE_NUMBER"))
        talk.answer(requests[0], refused(requests[0], "NOT_ENOUGH_REPLICAS"))
        order = []
        for _ in range(3):
            (request,) = talk.requests(after_ms=1000)  # one after the other
            order.append((values_of(request), batch_of(request).base_sequence, batch_of(request).producer_epoch))
            talk.answer(request, written(request, len(order)))
        assert order == [([b"0"], 0, 0), ([b"1"], 1, 0), ([b"2"], 2, 0)]

    def test_a_gap_bumps_the_epoch_and_begins_at_zero(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        first, second = talk.send("a", b"1"), None
        (request,) = talk.requests()
        talk.answer(request, written(request))
        assert first.done()
        second = talk.send("a", b"2")
        (request,) = talk.requests()
        assert batch_of(request).base_sequence == 1
        talk.answer(request, refused(request, "OUT_OF_ORDER_SEQUENCE_NUMBER"))  # the broker has lost the first one
        (request,) = talk.requests(after_ms=1000)
        assert (values_of(request), batch_of(request).producer_epoch, batch_of(request).base_sequence) == ([b"2"], 1, 0)
        talk.answer(request, written(request, 1))
        assert second.metadata().offset == 1

    def test_an_unknown_producer_bumps_the_epoch(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        talk.send("a")
        (request,) = talk.requests()
        talk.answer(request, response(request, error_code=by_name("UNKNOWN_PRODUCER_ID").code, log_start_offset=9))
        (request,) = talk.requests(after_ms=1000)
        assert (batch_of(request).producer_epoch, batch_of(request).base_sequence) == (1, 0)

    def test_a_batch_that_expired_after_a_retry_is_unresolved(self) -> None:
        talk = Dialogue({"linger.ms": 0, "delivery.timeout.ms": 30_000})
        lost = talk.send("a", b"1")
        (request,) = talk.requests()
        talk.answer(request, refused(request, "NOT_ENOUGH_REPLICAS_AFTER_APPEND"))
        (request,) = talk.requests(after_ms=1000)
        talk.requests(after_ms=30_000)
        assert isinstance(lost.exception(), KafkaTimeoutError)
        talk.send("a", b"2")
        (fresh,) = talk.requests(after_ms=10)
        assert (batch_of(fresh).producer_epoch, batch_of(fresh).base_sequence) == (1, 0)
        talk.answer(request, written(request))
        assert isinstance(lost.exception(), KafkaTimeoutError)

    def test_a_fenced_producer_fails_everything(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        first = talk.send("a")
        (request,) = talk.requests()
        second = talk.send("a")
        talk.answer(request, refused(request, "PRODUCER_FENCED"))
        talk.requests()
        for delivery in (first, second):
            error = delivery.exception()
            assert isinstance(error, KafkaError)
            assert error.fatal
        with pytest.raises(KafkaError) as caught:
            talk.send("a")
        assert caught.value.name == "PRODUCER_FENCED"


class TestSizesAndPartitions:
    def test_both_sizes_are_in_the_error(self) -> None:
        talk = Dialogue({"max.request.size": 1000})
        with pytest.raises(RecordTooLargeError, match=r"^the record has 1086 bytes, and max\.request\.size is 1000$"):
            talk.send("a", b"x" * 1000)
        talk = Dialogue({"buffer.memory": 900, "batch.size": 100})
        with pytest.raises(RecordTooLargeError, match=r"^the record has 1086 bytes, and buffer\.memory is 900$"):
            talk.send("a", b"x" * 1000)
        with pytest.raises(UsageError, match=r"^batch\.size=16384: larger than buffer\.memory=900"):
            Dialogue({"buffer.memory": 900}).send("a")

    def test_keys_are_hashed_unless_they_are_ignored(self) -> None:
        talk = Dialogue(topics={"a": [1] * 10})
        places = {talk.send("a", key=b"key").place for _ in range(5)}
        assert len(places) == 1
        talk = Dialogue({"partitioner.ignore.keys": True, "batch.size": 100}, topics={"a": [1] * 10}, draws=[0.01 * i for i in range(100)])
        assert len({talk.send("a", b"x" * 90, key=b"key").place for _ in range(50)}) > 1

    def test_a_partitioner_of_the_program(self) -> None:
        asked = []

        def choose(topic: str, key: bytes | None, value: bytes | None, available: object, count: int) -> int:
            asked.append((topic, key, value, available, count))
            return 2 if value != b"bad" else 3

        talk = Dialogue(topics={"a": [1, -1, 2]}, partitioner=choose)
        assert talk.send("a", key=b"k").place == ("a", 2)
        assert asked == [("a", b"k", b"v", [0, 2], 3)]
        with pytest.raises(UsageError, match=r"it chose 3 for a; allowed: 0 to 2"):
            talk.send("a", b"bad")

    def test_a_slow_node_is_passed_over(self) -> None:
        settings = {"partitioner.availability.timeout.ms": 1000, "batch.size": 100, "linger.ms": 0}
        talk = Dialogue(settings, topics={"a": [1, 2]}, draws=[0.1, 0.9] * 200)
        talk.send("a", partition=0)
        talk.send("a", partition=1)
        talk.links.down = {2}
        talk.requests()
        talk.requests(after_ms=2000)
        talk.requests()
        places = {talk.send("a", b"x" * 90).place for _ in range(20)}
        places = {talk.send("a", b"x" * 90).place for _ in range(20)}
        assert places == {("a", 0)}


class TestEnd:
    def test_close_ends_when_everything_is_answered(self) -> None:
        talk = Dialogue({"linger.ms": 1000})
        delivery = talk.send("a")
        talk.core.close()
        with pytest.raises(ProducerClosedError):
            talk.core.advance(talk.entry("a"), talk.now_ms)
        (request,) = talk.requests()
        assert not talk.core.has_ended
        talk.answer(request, written(request))
        assert delivery.metadata().offset == 0
        assert talk.core.has_ended

    def test_a_forced_close_fails_what_waits_and_what_is_in_flight_once(self) -> None:
        talk = Dialogue({"linger.ms": 0})
        sent = talk.send("a")
        (request,) = talk.requests()
        waiting = talk.send("a")
        talk.core.force_close()
        assert talk.core.has_ended
        for delivery in (sent, waiting):
            assert isinstance(delivery.exception(), ProducerClosedError)
        assert len(talk.core.take_finished()) == 2
        talk.answer(request, written(request))
        assert not talk.core.take_finished()
        assert isinstance(sent.exception(), ProducerClosedError)


def test_a_batch_that_expires_while_it_is_sent_has_its_records() -> None:
    talk = Dialogue({"delivery.timeout.ms": 1000, "request.timeout.ms": 500, "max.in.flight.requests.per.connection": 1})
    talk.send("a", b"first", partition=0)
    (first,) = talk.requests(after_ms=500)
    late = talk.send("a", b"late", partition=0)
    talk.requests(after_ms=999)
    talk.answer(first, written(first))
    (second,) = talk.requests(after_ms=1)
    assert isinstance(late.exception(), KafkaTimeoutError)
    assert values_of(second) == [b"late"]
