"""Error responses of every request, envelopes and ApiVersions, compared with Kafka's own classes."""

from __future__ import annotations

import random
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.broker.apis.table import served_apis
from kops.broker.controller_link.envelope import envelope, envelope_response, open_envelope, read_response
from kops.broker.controller_link.error_responses import error_response
from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.api_keys import BY_NAME, ApiKey
from kops.protocol.connections.connection import Request
from kops.protocol.declaration import Message, Struct
from kops.protocol.messages import DescribeUserScramCredentialsRequest, ProduceRequest
from kops.protocol.registry import request_class, response_class
from tests.support.kafka.oracle import Oracle
from tests.support.requests.messages import random_message

SEEDS = 2
REQUESTS = "org.apache.kafka.common.requests"


class RealRequests:
    """Parses requests with Kafka's classes."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        self.keys = oracle.java_class("org.apache.kafka.common.protocol.ApiKeys")
        self.errors = oracle.java_class("org.apache.kafka.common.protocol.Errors")
        self.accessor = oracle.java_class("org.apache.kafka.common.protocol.ByteBufferAccessor")
        self.wrap = oracle.java_class("java.nio.ByteBuffer").wrap
        self.to_buffer = oracle.java_class("org.apache.kafka.common.protocol.MessageUtil").toByteBufferAccessor

    def parse(self, api: ApiKey, version: int, data: bytes) -> Any:
        """Return a request as Kafka parses it."""
        buffer = self.accessor(self.wrap(data))
        abstract = self.oracle.java_class(f"{REQUESTS}.AbstractRequest")
        return get_field(abstract.parseRequest(self.keys.forId(api.key), self.oracle.short(version), buffer), "request")

    def written(self, response: Any, version: int) -> bytes | None:
        """Return a response's bytes, or None if the version can't carry it."""
        try:
            buffer = self.to_buffer(response.data(), self.oracle.short(version)).buffer()
        except Py4JJavaError:
            return None
        return bytes(buffer.array())[: buffer.limit()]


@pytest.fixture(scope="module")
def real(oracle: Oracle) -> RealRequests:
    """Provide Kafka's classes."""
    return RealRequests(oracle)


def requests(api: ApiKey, version: int) -> list[Message]:
    """Return random requests. They have no null records, which a parsed request never has, and always users, without which Kafka's class
    itself fails.
    """
    made = [random_message(request_class(api), version, seed) for seed in range(SEEDS)]
    for request in made:
        if isinstance(request, ProduceRequest):
            for topic in request.topic_data:
                for partition in topic.partition_data:
                    partition.records = partition.records or b""
        if isinstance(request, DescribeUserScramCredentialsRequest):
            request.users = request.users or []
    return made


def with_kafkas_words(struct: Struct, kafkas: str, ours: str) -> None:
    """Kafka describes an error in other words. Replace them with ours."""
    for field in struct.FIELDS:
        value = getattr(struct, field.name)
        if field.of is not None:
            for one in (value or ()) if field.is_array else [value]:
                if one is not None:
                    with_kafkas_words(one, kafkas, ours)
        elif field.name == "error_message" and value == kafkas:
            struct.error_message = ours  # type: ignore[attr-defined]


def in_order(message: Message) -> Message:
    """Sort what Kafka has in the order of a HashMap: Produce's topics and partitions, and those of WriteTxnMarkers with its producers."""
    if type(message).__name__ == "WriteTxnMarkersResponse":
        for marker in message.markers:  # type: ignore[attr-defined]
            for topic in marker.topics:
                topic.partitions.sort(key=lambda one: one.partition_index)
            marker.topics.sort(key=lambda one: one.name)
        message.markers.sort(key=lambda one: one.producer_id)  # type: ignore[attr-defined]
    if type(message).__name__ == "ProduceResponse":
        for topic in message.responses:  # type: ignore[attr-defined]
            topic.partition_responses.sort(key=lambda one: one.index)
        message.responses.sort(key=lambda one: (one.name, one.topic_id))  # type: ignore[attr-defined]
    return message


@pytest.mark.parametrize("api", served_apis(), ids=lambda api: api.name)
def test_error_responses(real: RealRequests, api: ApiKey) -> None:
    """Every version, with a text and without one, gives the same bytes."""
    given = (("TOPIC_AUTHORIZATION_FAILED", "not you"), ("INVALID_REQUEST", ""), ("UNKNOWN_SERVER_ERROR", "a secret"))
    for version in api.versions:
        for number, request in enumerate(requests(api, version)):
            name, why = given[(version + number) % 3]
            row = getattr(real.errors, name)
            theirs = real.parse(api, version, request.encode(version)).getErrorResponse(row.exception(why) if why else row.exception())
            ours = error_response(request, version, ApiError(name, why))
            assert (ours is None) == (theirs is None), (version, request)
            if ours is None:
                continue
            expected = real.written(theirs, version)
            if expected is None:
                with pytest.raises(ApiError):
                    ours.write(version)
                continue
            message = response_class(api).decode(expected, version)
            with_kafkas_words(message, row.message(), errors.by_name(name).words)
            assert in_order(response_class(api).decode(ours.encode(version), version)) == in_order(message), (version, request)


def test_errors_of_acks_0(real: RealRequests) -> None:
    """There is no response that could contain an error."""
    api = BY_NAME["Produce"]
    request = ProduceRequest(acks=0)
    assert real.parse(api, 9, request.encode(9)).getErrorResponse(real.errors.INVALID_REQUEST.exception()) is None
    assert error_response(request, 9, ApiError("INVALID_REQUEST")) is None


def real_context(real: RealRequests, api: ApiKey, version: int, request: Request, host: bytes, name: str) -> Any:
    """Return the context of a client's request in Kafka."""
    oracle, jvm = real.oracle, real.oracle.jvm
    header = oracle.java_class(f"{REQUESTS}.RequestHeader")(
        real.keys.forId(api.key), oracle.short(version), request.client_id, request.correlation_id
    )
    principal = jvm.org.apache.kafka.common.security.auth.KafkaPrincipal("User", name)
    serde = jvm.org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder(None, None)
    return oracle.java_class(f"{REQUESTS}.RequestContext")(
        header,
        "connection",
        jvm.java.net.InetAddress.getByAddress(host),
        jvm.java.util.Optional.empty(),
        principal,
        jvm.org.apache.kafka.common.network.ListenerName("PLAINTEXT"),
        jvm.org.apache.kafka.common.security.auth.SecurityProtocol.PLAINTEXT,
        jvm.org.apache.kafka.common.network.ClientInformation.EMPTY,
        False,
        jvm.java.util.Optional.of(serde),
    )


def test_envelopes(real: RealRequests) -> None:
    """Envelopes have the same bytes as Kafka's, and kops can open them. The same holds for the responses."""
    rng = random.Random(3)
    util = real.oracle.java_class("org.apache.kafka.server.ForwardingManagerUtil")
    responses = real.oracle.java_class(f"{REQUESTS}.AbstractResponse")
    short = real.oracle.short(0)
    for api in [api for api in served_apis() if api.forwardable]:
        for version in api.versions:
            message = random_message(request_class(api), version, 5)
            request = Request(api, version, version, rng.randrange(2**31), rng.choice(("", "me", "grüße")), message, 0)
            host, name = rng.choice(((b"\x7f\0\0\1", "127.0.0.1"), (bytes(15) + b"\1", "::1"))), rng.choice(("ANONYMOUS", "a:b"))
            context = real_context(real, api, version, request, host[0], name)
            theirs = real.parse(api, version, message.encode(version))
            built = util.buildEnvelopeRequest(context, theirs.serializeWithHeader(get_field(context, "header"))).build(short)
            buffer = real.to_buffer(built.data(), short).buffer()
            ours = envelope(request, message, f"User:{name}", host[1])
            assert ours.encode(0) == bytes(buffer.array())[: buffer.limit()], (api.name, version)
            opened = open_envelope(ours)
            assert (opened.principal, opened.client_host, opened.request.message) == (f"User:{name}", host[1], message)
            response = random_message(response_class(api), version, 6)
            buffer = real.accessor(real.wrap(response.encode(version)))
            parsed = responses.parseResponse(real.keys.forId(api.key), buffer, real.oracle.short(version))
            payload = context.buildResponseEnvelopePayload(parsed)
            told = bytes(payload.array())[: payload.limit()]
            assert envelope_response(opened.request, response).response_data == told, (api.name, version)
            assert read_response(request, told) == response
