"""Forwarding: envelopes out, responses back, errors of the envelope itself, and topics that are created automatically."""

from __future__ import annotations

from typing import Any, cast

import pytest

from kops.broker.controller_link.auto_topics import AutoTopics, ExpiringErrors, creatable_topic
from kops.broker.controller_link.channel import ControllerChannel
from kops.broker.controller_link.envelope import envelope_response, open_envelope
from kops.broker.controller_link.forwarding import Forwarding
from kops.config import BrokerConfig
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import error_code
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EnvelopeRequest,
    EnvelopeResponse,
    MetadataRequest,
    MetadataResponse,
)
from kops.protocol.messages.create_topics_request import CreatableTopic
from kops.protocol.messages.create_topics_response import CreatableTopicResult
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from tests.support.parts.answering import Asked, Broker

NODE = {"process.roles": "broker", "node.id": "1", "controller.listener.names": "CONTROLLER", "controller.quorum.voters": "9@c:9093"}


class Controller:
    """A channel to a controller that the test simulates."""

    versions = None

    def __init__(self) -> None:
        self.asked: list[tuple[EnvelopeRequest, Any]] = []

    def send(self, message: Message, done: Any) -> None:
        assert isinstance(message, EnvelopeRequest)
        self.asked.append((message, done))

    def answer(self, message: Message | ApiError | EnvelopeResponse) -> None:
        """Answer the oldest envelope. A message is put into an envelope response first, unless it is one, or an error of the connection."""
        asked, done = self.asked.pop(0)
        if not isinstance(message, ApiError | EnvelopeResponse):
            message = envelope_response(open_envelope(asked).request, message)
        done(message)


class World:
    """A broker whose controller is the test."""

    def __init__(self, **properties: str) -> None:
        self.controller = Controller()
        forwarding = Forwarding(cast("ControllerChannel", self.controller))
        self.config = BrokerConfig.accept(NODE | {key.replace("_", "."): value for key, value in properties.items()})
        self.broker = Broker(
            forwarding=forwarding,
            auto_topics=AutoTopics(forwarding, lambda: self.config, lambda: 0),
            cluster_id="c",
            draw=lambda: 0.0,
        )
        self.broker.parts.config = self.config

    def ask(self, message: Message, version: int) -> Asked:
        return self.broker.ask(message, version)


@pytest.fixture
def world() -> World:
    """Provide a broker with Kafka's defaults."""
    return World()


CREATE = CreateTopicsRequest([CreatableTopic("orders", 3, 1)], 1000)


def test_there_and_back(world: World) -> None:
    asked = world.ask(CREATE, 7)
    forwarded = open_envelope(world.controller.asked[0][0])
    assert (forwarded.principal, forwarded.client_host) == ("User:ANONYMOUS", "127.0.0.1")
    assert forwarded.request.message == CREATE
    assert (forwarded.request.version, forwarded.request.correlation_id, forwarded.request.client_id) == (7, 1, "someone")
    response = CreateTopicsResponse(topics=[CreatableTopicResult("orders", num_partitions=3)])
    world.controller.answer(response)
    assert asked.answer == response


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        (ApiError("REQUEST_TIMED_OUT"), "REQUEST_TIMED_OUT"),
        (ApiError("NETWORK_EXCEPTION"), "REQUEST_TIMED_OUT"),
        (ApiError("UNSUPPORTED_VERSION"), "UNKNOWN_SERVER_ERROR"),
        (EnvelopeResponse(error_code=error_code("CLUSTER_AUTHORIZATION_FAILED")), "UNKNOWN_SERVER_ERROR"),
        (EnvelopeResponse(b"\0\0\0\x01\x02"), "UNKNOWN_SERVER_ERROR"),
        (EnvelopeResponse(b"\0\0\0\x09\0" + bytes(20)), "UNKNOWN_SERVER_ERROR"),
        (EnvelopeResponse(), "UNKNOWN_SERVER_ERROR"),
    ],
)
def test_what_goes_wrong_on_the_way(world: World, result: ApiError | EnvelopeResponse, expected: str) -> None:
    asked = world.ask(CREATE, 7)
    world.controller.answer(result)
    assert isinstance(asked.answer, CreateTopicsResponse)
    assert [(topic.name, topic.error_code, topic.error_message) for topic in asked.answer.topics] == [
        ("orders", error_code(expected), None)
    ]


def test_a_version_that_the_controller_does_not_know_ends_the_connection(world: World) -> None:
    asked = world.ask(CREATE, 7)
    world.controller.answer(EnvelopeResponse(error_code=error_code("UNSUPPORTED_VERSION")))
    assert asked.is_closed


def test_not_the_controller_is_said_by_the_envelope(world: World) -> None:
    for message, version, response in (
        (CREATE, 7, CreateTopicsResponse(topics=[CreatableTopicResult("orders", error_code=error_code("NOT_CONTROLLER"))])),
        (DescribeQuorumRequest(), 2, DescribeQuorumResponse(error_code=error_code("NOT_LEADER_OR_FOLLOWER"))),
    ):
        world.ask(message, version)
        request = open_envelope(world.controller.asked.pop()[0]).request
        assert envelope_response(request, response) == EnvelopeResponse(error_code=error_code("NOT_CONTROLLER"))


def opened(**changes: bytes | None) -> str:
    """Return the error of an envelope with these changes."""
    world = World()
    world.ask(CREATE, 7)
    made = world.controller.asked[0][0]
    for name, value in changes.items():
        setattr(made, name, value)
    with pytest.raises(ApiError) as error:
        open_envelope(made)
    return error.value.name


def test_envelopes_that_are_none() -> None:
    assert opened(request_principal=b"") == opened(request_principal=None) == "PRINCIPAL_DESERIALIZATION_FAILURE"
    assert opened(request_principal=b"\0\7\0\0") == opened(request_principal=b"\0\0\x05a") == "PRINCIPAL_DESERIALIZATION_FAILURE"
    assert opened(client_host_address=b"\1\2\3") == "INVALID_REQUEST"
    for data in (b"", b"\0\x13", b"\x01\x13" + bytes(9), b"\0\x13\0\x63" + bytes(20)):
        assert opened(request_data=data) == "UNSUPPORTED_VERSION"
    fetch = b"\0\1\0\x0c" + bytes(20)
    assert opened(request_data=fetch) == "INVALID_REQUEST"


def metadata(world: World, *names: str, **options: Any) -> dict[str | None, int]:
    """Return the error codes of topics in a Metadata response."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **options)
    answer = world.ask(request, 12).answer
    assert isinstance(answer, MetadataResponse)
    return {topic.name: topic.error_code for topic in answer.topics}


def test_topics_are_made_once(world: World) -> None:
    unknown, invalid = error_code("UNKNOWN_TOPIC_OR_PARTITION"), error_code("INVALID_TOPIC_EXCEPTION")
    assert metadata(world, "orders", "new", "bad name") == {"orders": 0, "new": unknown, "bad name": invalid}
    assert metadata(world, "new", "newer") == {"new": unknown, "newer": unknown}
    wanted = [open_envelope(envelope).request for envelope, _ in world.controller.asked]
    assert [[topic.name for topic in request.message.topics] for request in wanted] == [["new"], ["newer"]]  # type: ignore[attr-defined]
    assert wanted[0].message == CreateTopicsRequest([CreatableTopic("new", -1, -1)], world.config["request.timeout.ms"])
    world.controller.answer(ApiError("REQUEST_TIMED_OUT"))
    world.controller.answer(CreateTopicsResponse(topics=[CreatableTopicResult("newer", error_code=42, error_message="no")]))
    metadata(world, "new", "newer")
    assert len(world.controller.asked) == 1


def test_topics_are_not_made_where_they_are_not_to_be() -> None:
    world = World()
    assert metadata(world, "new", allow_auto_topic_creation=False) == {"new": error_code("UNKNOWN_TOPIC_OR_PARTITION")}
    assert metadata(world, "orders") == {"orders": 0}
    world.config = world.broker.parts.config = BrokerConfig.accept(NODE | {"auto.create.topics.enable": "false"})
    assert metadata(world, "new") == {"new": error_code("UNKNOWN_TOPIC_OR_PARTITION")}
    assert isinstance(world.ask(MetadataRequest(topics=None), 12).answer, MetadataResponse)
    assert not world.controller.asked


def test_the_numbers_of_new_topics() -> None:
    config = BrokerConfig.accept(NODE | {"num.partitions": "7", "default.replication.factor": "2", "offsets.topic.num.partitions": "11"})
    assert creatable_topic("a", config) == CreatableTopic("a", 7, 2)
    offsets = creatable_topic("__consumer_offsets", config)
    assert (offsets.num_partitions, offsets.replication_factor) == (11, 3)
    assert {one.name: one.value for one in offsets.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }
    transactions = {one.name: one.value for one in creatable_topic("__transaction_state", config).configs}
    assert transactions["min.insync.replicas"] == "2" and transactions["unclean.leader.election.enable"] == "false"
    share = {one.name: one.value for one in creatable_topic("__share_group_state", config).configs}
    assert share["retention.ms"] == "-1" and share["cleanup.policy"] == "delete"


def test_internal_topics_of_applications_wait_after_a_failure() -> None:
    world, now_ms = World(), 1000
    topics = AutoTopics(Forwarding(cast("ControllerChannel", world.controller)), lambda: world.config, lambda: now_ms)
    context: Any = world.ask(CREATE, 7)
    world.controller.asked.clear()
    wanted = {name: CreatableTopic(name, 2, 3) for name in ("made", "not made")}

    def asked() -> list[list[str]]:
        messages = (open_envelope(envelope).request.message for envelope, _ in world.controller.asked)
        return [[topic.name for topic in message.topics] for message in messages if isinstance(message, CreateTopicsRequest)]

    topics.create_for_streams(wanted, context, 10_000)
    topics.create_for_streams(wanted, context, 10_000)
    assert asked() == [["made", "not made"]]
    failed = CreatableTopicResult("not made", error_code=error_code("INVALID_REPLICATION_FACTOR"), error_message="too few")
    world.controller.answer(CreateTopicsResponse(topics=[CreatableTopicResult("made"), failed]))
    topics.create_for_streams(wanted, context, 10_000)
    assert (asked(), topics.streams_errors(wanted)) == ([["made"]], {"not made": "too few"})
    world.controller.answer(ApiError("REQUEST_TIMED_OUT"))
    assert topics.streams_errors(["made"]) == {"made": "CreateTopicsRequest to controller timed out"}
    now_ms += 10_000
    topics.create_for_streams(wanted, context, 10_000)
    assert (asked(), topics.streams_errors(wanted)) == ([["made", "not made"]], {})


def test_errors_that_expire_first_make_way() -> None:
    errors = ExpiringErrors(lambda: 0, max_count=2)
    for name, kept_ms in (("a", 30), ("b", 10), ("c", 20)):
        errors.put(name, f"{name} failed", kept_ms)
    assert [errors.get(name) for name in "abc"] == ["a failed", None, "c failed"]
