"""Settings described and changed through a broker: what it decides itself, what the controller decides, and how the two are combined."""

from __future__ import annotations

from typing import Any

import pytest

from kops.broker.parts.dynamic_config import DynamicBrokerConfig
from kops.config import BrokerConfig
from kops.metadata.image.metadata_cache import error_code
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import MetadataProvenance
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.declaration import Message
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    ConfigRecord,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    alter_configs_request,
    alter_configs_response,
    incremental_alter_configs_request,
    incremental_alter_configs_response,
)
from kops.protocol.messages.describe_configs_request import DescribeConfigsResource
from tests.support.parts.answering import Asked, Broker

NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "9@c:9093",
    "log.segment.bytes": "1048576",
}
KINDS = (ResourceType.TOPIC, ResourceType.BROKER, ResourceType.BROKER_LOGGER, ResourceType.GROUP, ResourceType.CLIENT_METRICS)
TOPIC, BROKER, LOGGER, GROUP, METRICS = (kind.value for kind in KINDS)
SET, DELETE, APPEND, SUBTRACT = range(4)
INVALID_REQUEST, INVALID_CONFIG = error_code("INVALID_REQUEST"), error_code("INVALID_CONFIG")


class Forwarded:
    """A Forwarding whose controller is the test. It keeps the requests and their callbacks."""

    def __init__(self) -> None:
        self.asked: list[tuple[Message, Any]] = []

    def forward(self, _context: object, done: Any, message: Message) -> None:
        self.asked.append((message, done))


class World:
    """Broker 1, with these settings in the metadata: of topics by name, of brokers by id, and of all brokers under an empty name."""

    def __init__(self, *settings: tuple[int, str, str, str]) -> None:
        self.forwarding = Forwarded()
        self.broker = Broker(forwarding=self.forwarding, node_id=1)
        delta = MetadataDelta(self.broker.cache.image)
        for kind, name, key, value in settings:
            delta.replay(ConfigRecord(kind, name, key, value))
        self.broker.cache.image = delta.apply(MetadataProvenance(43, 1, 1, True))
        parts = self.broker.parts
        parts.config = BrokerConfig.accept(NODE)
        parts.dynamic_config = DynamicBrokerConfig(parts)
        for name in ("", "1"):
            own = {key: value for kind, resource, key, value in settings if kind == BROKER and resource == name}
            config = parts.dynamic_config.settings
            (config.update_broker if name else config.update_cluster)(own)

    def describe(self, kind: int, name: str, *keys: str, synonyms: bool = False) -> dict[str, tuple[Any, ...]] | tuple[int, str | None]:
        """Return the value and source of each setting, with synonyms if asked for, or the error."""
        request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, list(keys) or None)], synonyms)
        (told,) = self.broker.answer(request, 4, DescribeConfigsResponse).results
        assert (told.resource_type, told.resource_name) == (kind, name)
        if told.error_code:
            assert told.configs == []
            return told.error_code, told.error_message
        rows = {}
        for entry in told.configs:
            others = tuple((one.name, one.value, one.source) for one in entry.synonyms)
            rows[entry.name] = (entry.value, entry.config_source, *others)
        return rows

    def change(self, kind: int, name: str, *operations: tuple[str, int, str | None]) -> tuple[int, str | None] | None:
        """Return the error with which the broker itself answers an incremental change, or None if it asks the controller."""
        asked = self.ask((kind, name, operations))
        if asked.answer is None:
            return None
        assert isinstance(asked.answer, IncrementalAlterConfigsResponse)
        (result,) = asked.answer.responses
        return result.error_code, result.error_message

    def ask(self, *resources: tuple[int, str, tuple[tuple[str, int, str | None], ...]]) -> Asked:
        """Send an incremental change."""
        module = incremental_alter_configs_request
        made = [
            module.AlterConfigsResource(kind, name, [module.AlterableConfig(*operation) for operation in operations])
            for kind, name, operations in resources
        ]
        return self.broker.ask(IncrementalAlterConfigsRequest(made), 1)


def test_settings_of_a_topic() -> None:
    world = World((TOPIC, "orders", "retention.ms", "77"), (BROKER, "1", "log.retention.ms", "88"))
    found = world.describe(TOPIC, "orders", "retention.ms", "segment.bytes", "flush.ms", synonyms=True)
    assert found == {
        "segment.bytes": ("1048576", 4, ("log.segment.bytes", "1048576", 4), ("log.segment.bytes", "1073741824", 5)),
        "flush.ms": ("9223372036854775807", 5),
        "retention.ms": ("77", 1, ("retention.ms", "77", 1), ("log.retention.ms", "88", 2), ("log.retention.hours", "168", 5)),
    }
    everything = world.describe(TOPIC, "orders")
    assert isinstance(everything, dict) and len(everything) > 30 and all(len(row) == 2 for row in everything.values())


def test_settings_of_brokers() -> None:
    world = World((BROKER, "", "log.retention.ms", "99"), (BROKER, "1", "message.max.bytes", "2000000"))
    assert world.describe(BROKER, "") == {"log.retention.ms": ("99", 3)}
    assert world.describe(BROKER, "1", "log.retention.ms", "message.max.bytes", "node.id", "num.partitions") == {
        "message.max.bytes": ("2000000", 2),
        "log.retention.ms": ("99", 3),
        "node.id": ("1", 4),
        "num.partitions": ("1", 5),
    }


def test_settings_of_groups_and_client_metrics() -> None:
    name, synonym = "consumer.session.timeout.ms", "group.consumer.session.timeout.ms"
    world = World((GROUP, "mine", name, "46000"), (METRICS, "mine", "metrics", "a,b"))
    static = (synonym, "45000", 5)
    assert world.describe(GROUP, "mine", name, synonyms=True) == {name: ("46000", 8, (name, "46000", 8), static)}
    assert world.describe(GROUP, "other", name, synonyms=True) == {name: ("45000", 5, static)}
    reset = "share.auto.offset.reset"
    assert world.describe(GROUP, "other", reset, synonyms=True) == {reset: ("latest", 5, (reset, "latest", 5))}
    assert world.describe(METRICS, "other") == {"metrics": ("", 5), "interval.ms": ("300000", 5), "match": ("", 5)}
    assert world.describe(METRICS, "mine", "metrics", synonyms=True) == {"metrics": ("a,b", 7, ("metrics", "a,b", 7))}


def test_what_can_not_be_described() -> None:
    world = World()
    assert world.describe(TOPIC, "none") == (error_code("UNKNOWN_TOPIC_OR_PARTITION"), "")
    why = "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    assert world.describe(TOPIC, "a b") == (error_code("INVALID_TOPIC_EXCEPTION"), why)
    assert world.describe(BROKER, "2") == (INVALID_REQUEST, "Unexpected broker id, expected 1 or empty string, but received 2")
    assert world.describe(BROKER, "x") == (INVALID_REQUEST, "Broker id must be an integer, but it is: x")
    assert world.describe(LOGGER, "1") == {} and world.describe(LOGGER, "") == (INVALID_REQUEST, "Broker id must not be empty")
    assert world.describe(LOGGER, "3") == (INVALID_REQUEST, "Unexpected broker id, expected 1 but received 3")
    assert world.describe(GROUP, "") == (INVALID_REQUEST, "Group name must not be empty")
    assert world.describe(METRICS, "") == (INVALID_REQUEST, "Client metrics subscription name must not be empty")
    assert world.describe(99, "g") == (INVALID_REQUEST, by_name("INVALID_REQUEST").words)


def test_changes_of_a_broker_are_checked_here() -> None:
    world = World((BROKER, "1", "message.max.bytes", "2000000"))
    assert world.change(BROKER, "1", ("log.retention.ms", SET, "1000")) is None
    assert world.change(BROKER, "1", ("message.max.bytes", DELETE, None)) is None
    assert world.change(BROKER, "", ("log.cleanup.policy", APPEND, "compact")) is None
    assert world.change(BROKER, "", ("log.cleanup.policy", SUBTRACT, "delete")) is None
    assert len(world.forwarding.asked) == 4
    for name, operation, expected in (
        ("1", ("node.id", SET, "7"), (INVALID_REQUEST, "Cannot update these configs dynamically: [node.id]")),
        ("1", ("nothing", APPEND, "7"), (INVALID_CONFIG, "Unknown config name: nothing")),
        ("1", ("log.retention.ms", APPEND, "7"), (INVALID_CONFIG, "Config value append is not allowed for config key: log.retention.ms")),
        ("1", ("log.retention.ms", 9, "7"), (INVALID_REQUEST, "Unknown operations type 9")),
        ("1", ("log.retention.ms", SET, None), (INVALID_REQUEST, "Null value not supported for : log.retention.ms")),
        ("2", ("log.retention.ms", SET, "1"), (INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2")),
        ("x", ("log.retention.ms", SET, "1"), (INVALID_REQUEST, "Node id must be an integer, but it is: x")),
    ):
        assert world.change(BROKER, name, operation) == expected
    assert world.change(BROKER, "1", ("a", SET, "1"), ("a", SET, "2")) == (INVALID_REQUEST, "Error due to duplicate config keys")
    assert world.change(0, "x", ("a", SET, "1")) == (INVALID_REQUEST, "Unknown resource type 0")
    assert len(world.forwarding.asked) == 4


@pytest.mark.parametrize(
    ("name", "operation", "expected"),
    [
        ("1", SET, (INVALID_CONFIG, "Logger kops does not exist!")),
        ("1", DELETE, (INVALID_CONFIG, "Logger kops does not exist!")),
        ("1", APPEND, (INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_LOGGER resource")),
        ("1", 9, (INVALID_REQUEST, "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource")),
        ("2", SET, (INVALID_REQUEST, "Unexpected node id. Expected 1, but received 2")),
        ("x", SET, (INVALID_REQUEST, "Node id must be an integer, but it is: x")),
    ],
)
def test_there_are_no_loggers(name: str, operation: int, expected: tuple[int, str]) -> None:
    world = World()
    assert world.change(LOGGER, name, ("kops", operation, "DEBUG")) == expected
    assert world.change(LOGGER, "1") == (0, None)


def test_both_answers_are_put_together_in_order() -> None:
    world = World()
    change = (("retention.ms", SET, "5"),)
    asked = world.ask((TOPIC, "a", change), (BROKER, "2", change), (TOPIC, "b", change), (TOPIC, "c", change), (TOPIC, "c", change))
    ((forwarded, done),) = world.forwarding.asked
    assert isinstance(forwarded, IncrementalAlterConfigsRequest)
    assert [resource.resource_name for resource in forwarded.resources] == ["a", "b"]
    made = incremental_alter_configs_response.AlterConfigsResourceResponse
    done(IncrementalAlterConfigsResponse(responses=[made(40, "no", TOPIC, "b")]))
    assert isinstance(asked.answer, IncrementalAlterConfigsResponse)
    told = [(one.resource_name, one.error_code, one.error_message) for one in asked.answer.responses]
    twice = (INVALID_REQUEST, "Each resource must appear at most once.")
    assert told == [
        ("a", error_code("UNKNOWN_SERVER_ERROR"), None),
        ("2", INVALID_REQUEST, "Unexpected broker id, expected 1, but received 2"),
        ("b", 40, "no"),
        ("c", *twice),
        ("c", *twice),
    ]


def test_whole_sets_of_settings() -> None:
    """AlterConfigs replaces all previous settings, so the new ones are checked alone."""
    world = World((BROKER, "1", "message.max.bytes", "2000000"))
    module = alter_configs_request

    def ask(kind: int, name: str, **settings: str | None) -> Asked:
        configs = [module.AlterableConfig(key.replace("_", "."), value) for key, value in settings.items()]
        return world.broker.ask(AlterConfigsRequest([module.AlterConfigsResource(kind, name, configs)], True), 2)

    for asked, expected in (
        (ask(BROKER, "1", node_id="7"), "Cannot update these configs dynamically: [node.id]"),
        (ask(BROKER, "1", log_retention_ms=None), "Null value not supported for : log.retention.ms"),
        (ask(LOGGER, "1", kops="DEBUG"), "Unknown resource type 8"),
    ):
        assert isinstance(asked.answer, AlterConfigsResponse)
        assert [(one.error_code, one.error_message) for one in asked.answer.responses] == [(INVALID_REQUEST, expected)]
    asked = ask(BROKER, "1", log_retention_ms="5")
    ((forwarded, done),) = world.forwarding.asked
    assert isinstance(forwarded, AlterConfigsRequest) and forwarded.validate_only
    done(AlterConfigsResponse(responses=[alter_configs_response.AlterConfigsResourceResponse(0, None, BROKER, "1")]))
    assert isinstance(asked.answer, AlterConfigsResponse)
    assert [(one.error_code, one.resource_name) for one in asked.answer.responses] == [(0, "1")]


def test_a_controller_that_does_not_know_the_version_ends_the_connection() -> None:
    world = World()
    asked = world.ask((TOPIC, "a", (("retention.ms", SET, "5"),)))
    world.forwarding.asked[0][1](None)
    assert asked.is_closed
