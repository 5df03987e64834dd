"""ApiVersions, Metadata, DescribeCluster and similar requests, answered from a broker's image, and requests that fail."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kops.broker.apis import table
from kops.broker.apis.dispatch import dispatcher
from kops.config import BrokerConfig
from kops.errors import ApiError
from kops.metadata.image.metadata_cache import error_code
from kops.protocol.api_keys import API_KEYS, BY_NAME, Listener
from kops.protocol.connections.node_versions import NodeVersions
from kops.protocol.messages import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    DescribeAclsRequest,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
    SaslHandshakeRequest,
    SaslHandshakeResponse,
)
from kops.protocol.messages.api_versions_response import ApiVersion
from kops.protocol.messages.describe_client_quotas_request import ComponentData
from kops.protocol.messages.describe_topic_partitions_request import Cursor, TopicRequest
from kops.protocol.messages.describe_user_scram_credentials_request import UserName
from kops.storage.failures.load_errors import KafkaStorageError
from tests.support.parts.answering import Asked, Broker

NODE = {"process.roles": "broker", "node.id": "1", "controller.listener.names": "CONTROLLER", "controller.quorum.voters": "9@c:9093"}
TOPIC_OPERATIONS, CLUSTER_OPERATIONS = 3576, 8096  # a real broker returns these values


@pytest.fixture
def broker() -> Broker:
    """Provide broker 1 of `two_brokers`, without a connection to a controller."""
    made = Broker(forwarding=SimpleNamespace(controller_versions=None), cluster_id="the-cluster", draw=lambda: 0.7, kraft_version=lambda: 1)
    made.parts.config = BrokerConfig.accept(NODE | {"auto.create.topics.enable": "false"})
    return made


def versions(broker: Broker, version: int = 4) -> ApiVersionsResponse:
    """Return an answer to ApiVersions."""
    return broker.answer(ApiVersionsRequest("kops", "1.0"), version, ApiVersionsResponse)


def test_exactly_what_is_served_is_advertised(broker: Broker) -> None:
    told = {one.api_key: range(one.min_version, one.max_version + 1) for one in versions(broker).api_keys}
    assert set(told) == set(table.HANDLERS)
    for api in API_KEYS:
        if api.key in told:
            assert told[api.key] == api.advertised_versions(Listener.BROKER) and Listener.BROKER in api.listeners
    assert told[0] == range(14) and told[BY_NAME["InitProducerId"].key] == range(6)


def test_unstable_versions_where_they_are_enabled(broker: Broker) -> None:
    broker.parts.config = BrokerConfig.accept(NODE | {"unstable.api.versions.enable": "true"})
    assert next(one.max_version for one in versions(broker).api_keys if one.api_key == BY_NAME["InitProducerId"].key) == 6


def test_what_is_forwarded_depends_on_the_controller(broker: Broker) -> None:
    """Requests that the broker answers itself do not depend on the controller."""
    create, delete = BY_NAME["CreateTopics"].key, BY_NAME["DeleteTopics"].key
    known = [ApiVersion(create, 3, 5), ApiVersion(delete, 99, 100), ApiVersion(BY_NAME["Metadata"].key, 0, 1)]
    broker.parts.forwarding = cast("Any", SimpleNamespace(controller_versions=NodeVersions(ApiVersionsResponse(api_keys=known))))
    told = {one.api_key: (one.min_version, one.max_version) for one in versions(broker).api_keys}
    assert told[create] == (3, 5) and told[BY_NAME["Metadata"].key] == (0, 13)
    forwarded = {api.key for api in API_KEYS if api.forwardable}
    assert set(told) == {key for key in table.HANDLERS if key not in forwarded} | {create}


def test_features(broker: Broker) -> None:
    """Before version 4, features that begin at level 0 are left out."""
    newest, older = versions(broker), versions(broker, 3)
    assert {one.name: one.max_version for one in newest.supported_features}["metadata.version"] == 30
    assert [one.name for one in older.supported_features] == ["metadata.version"] and len(newest.supported_features) == 7
    assert [(one.name, one.min_version_level, one.max_version_level) for one in newest.finalized_features] == [("kraft.version", 1, 1)]
    assert newest.finalized_features_epoch == 42


@pytest.mark.parametrize("name", ["", "-", "a b", "a-", "ö"])
def test_software_without_a_proper_name(broker: Broker, name: str) -> None:
    for request in (ApiVersionsRequest(name, "1"), ApiVersionsRequest("a", name)):
        assert broker.answer(request, 4, ApiVersionsResponse).error_code == error_code("INVALID_REQUEST")
    assert broker.answer(ApiVersionsRequest(), 2, ApiVersionsResponse).error_code == 0


def test_metadata(broker: Broker) -> None:
    told = broker.answer(MetadataRequest(topics=None, include_topic_authorized_operations=True), 13, MetadataResponse)
    assert (told.cluster_id, told.controller_id, [one.node_id for one in told.brokers]) == ("the-cluster", 2, [1, 2])
    assert {topic.topic_authorized_operations for topic in told.topics} == {TOPIC_OPERATIONS}
    told = broker.answer(MetadataRequest(topics=[], include_cluster_authorized_operations=True), 10, MetadataResponse)
    assert told.topics == [] and told.cluster_authorized_operations == CLUSTER_OPERATIONS
    assert broker.answer(MetadataRequest(topics=[]), 8, MetadataResponse).cluster_authorized_operations == -(2**31)


def test_describe_cluster(broker: Broker) -> None:
    told = broker.answer(DescribeClusterRequest(include_cluster_authorized_operations=True), 2, DescribeClusterResponse)
    assert (told.cluster_id, told.controller_id, [one.broker_id for one in told.brokers]) == ("the-cluster", 2, [1, 2])
    assert told.cluster_authorized_operations == CLUSTER_OPERATIONS
    told = broker.answer(DescribeClusterRequest(True, endpoint_type=2), 1, DescribeClusterResponse)
    assert told.error_code == error_code("MISMATCHED_ENDPOINT_TYPE") and told.cluster_authorized_operations == -(2**31)


def test_describe_topic_partitions(broker: Broker) -> None:
    request = DescribeTopicPartitionsRequest([TopicRequest("orders"), TopicRequest("none")])
    told = broker.answer(request, 0, DescribeTopicPartitionsResponse)
    assert [(topic.name, len(topic.partitions), topic.topic_authorized_operations) for topic in told.topics] == [
        ("none", 0, TOPIC_OPERATIONS),
        ("orders", 2, TOPIC_OPERATIONS),
    ]
    failed = broker.answer(DescribeTopicPartitionsRequest(request.topics, cursor=Cursor("zzz", 0)), 0, DescribeTopicPartitionsResponse)
    assert {topic.error_code for topic in failed.topics} == {error_code("INVALID_REQUEST")}


def test_list_config_resources(broker: Broker) -> None:
    told = broker.answer(ListConfigResourcesRequest(), 1, ListConfigResourcesResponse)
    found = [(one.resource_type, one.resource_name) for one in told.config_resources]
    assert found[:4] == [(8, "1"), (8, "2"), (4, "1"), (4, "2")]
    assert sorted(found[4:]) == [(2, "__consumer_offsets"), (2, "clicks"), (2, "orders")]
    assert broker.answer(ListConfigResourcesRequest(), 0, ListConfigResourcesResponse).config_resources == []
    assert broker.answer(ListConfigResourcesRequest([2, 99]), 1, ListConfigResourcesResponse).error_code == error_code(
        "UNSUPPORTED_VERSION"
    )


def test_quotas_and_credentials(broker: Broker) -> None:
    """The answers have only what the metadata has."""
    told = broker.answer(DescribeClientQuotasRequest([ComponentData("user", 2, None)]), 1, DescribeClientQuotasResponse)
    assert (told.error_code, told.entries) == (0, [])
    twice = DescribeClientQuotasRequest([ComponentData("user", 2, None), ComponentData("user", 2, None)])
    refused = broker.answer(twice, 1, DescribeClientQuotasResponse)
    assert (refused.error_code, refused.entries) == (error_code("INVALID_REQUEST"), None)
    users = broker.answer(DescribeUserScramCredentialsRequest(None), 0, DescribeUserScramCredentialsResponse)
    assert (users.error_code, users.results) == (0, [])
    nobody = broker.answer(DescribeUserScramCredentialsRequest([UserName("ann")]), 0, DescribeUserScramCredentialsResponse)
    assert [(one.user, one.error_code) for one in nobody.results] == [("ann", error_code("RESOURCE_NOT_FOUND"))]


def test_too_late_for_sasl(broker: Broker) -> None:
    code = error_code("ILLEGAL_SASL_STATE")
    assert broker.answer(SaslHandshakeRequest("PLAIN"), 1, SaslHandshakeResponse).error_code == code
    assert broker.answer(SaslAuthenticateRequest(b""), 2, SaslAuthenticateResponse).error_code == code


def test_what_is_not_served_ends_the_connection(broker: Broker) -> None:
    assert broker.ask(DescribeAclsRequest(), 3).is_closed


def failing(error: BaseException, request: Any, version: int) -> Asked:
    """Answer a request with a handler that raises the error."""

    def fail(_parts: object, _context: object) -> None:
        raise error

    asked = Asked(request, version, "someone")
    dispatcher(cast("Any", None), {asked.request.api.key: fail})(asked)
    return asked


def test_failures_become_the_requests_own_response(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kops.broker.apis.dispatch")
    for error, expected in (
        (ApiError("INVALID_REQUEST", "no"), "INVALID_REQUEST"),
        (KafkaStorageError("gone"), "KAFKA_STORAGE_ERROR"),
        (ZeroDivisionError("a mistake"), "UNKNOWN_SERVER_ERROR"),
    ):
        answer = failing(error, MetadataRequest(topics=None), 13).answer
        assert isinstance(answer, MetadataResponse) and answer.error_code == error_code(expected)
    assert failing(ApiError("INVALID_REQUEST"), ProduceRequest(acks=0), 9).is_closed


def test_a_mistake_behind_the_answer_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL, "kops.broker.apis.dispatch")

    def answer_and_fail(_parts: object, context: Any) -> None:
        context.respond(MetadataResponse())
        raise ZeroDivisionError

    asked = Asked(MetadataRequest(topics=None), 13, "someone")
    dispatcher(cast("Any", None), {asked.request.api.key: answer_and_fail})(asked)
    assert asked.answer == MetadataResponse()
