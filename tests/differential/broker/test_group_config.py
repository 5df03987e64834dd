"""Settings of groups and of subscriptions to client metrics against Kafka's classes: both reject random sets alike, with the same text."""

from __future__ import annotations

import random
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from kops.config import BrokerConfig
from kops.config.client_metrics import CLIENT_METRICS_CONFIG_DEF, validate_client_metrics
from kops.config.groups import GROUP_CONFIG_DEF, broker_group_settings, broker_synonym, group_defaults, validate_group_config
from kops.config.values.definition import ConfigDef
from kops.errors import ApiError
from tests.support.kafka.oracle import Oracle

GROUP_CONFIG = "org.apache.kafka.coordinator.group.GroupConfig"
CLIENT_METRICS = "org.apache.kafka.server.metrics.ClientMetricsConfigs"
NODE = {
    "process.roles": "broker",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.voters": "9@c:9093",
}
BROKERS: tuple[dict[str, str], ...] = (
    {},
    {
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "10000",
        "group.streams.max.standby.replicas": "0",
    },
    {
        "group.share.max.partition.max.record.locks": "9000",
        "group.share.min.heartbeat.interval.ms": "1",
        "group.share.heartbeat.interval.ms": "100",
    },
    {"group.consumer.min.assignment.interval.ms": "500", "group.streams.max.assignment.interval.ms": "2000"},
)
NUMBERS = ["", "x", "-1", "0", "1", "2", "3", "5", "10", "11", "100", "999", "1000", "4000", "5000", "6000", "15000", "15001", "30000"]
NUMBERS += ["45000", "60000", "60001", " 45000 ", "2147483648"]
RESETS = ["earliest", "latest", "none", "LATEST", "by_duration", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:P1D"]
RESETS += [f"by_duration:{text}" for text in ("P1DT", "pt3m", "PT-1S", "-PT-1S", "PT0S", "PT1.5S", "PT.5S", "PT-0.5S", "PT1S1M", "-PT0S")]
RESETS += [f"by_duration:{text}" for text in ("P106751991167300D", "P106751991167301D", "PT1,25S", "P-1DT25H", "PT1.1234567890S", "1D")]
WORDS = {
    "int": NUMBERS,
    "boolean": ["true", "FALSE", "yes", ""],
    "string": [*RESETS, "read_committed", "read_uncommitted", "READ_COMMITTED"],
    "list": ["", "a", "a,b", "a,,b", "a,a", "*", "client_id=x", "client_id=", "=x", "client_id=a=b", "client_id = ^a.*$ , client_id=b"],
}
WORDS["list"] += [
    "client_software_name=\\p{Alpha}+",
    "client_id=(",
    "client_source_port=[",
    "Client_id=x",
    "client_instance_id=a{1,2}",
    "nothing",
]


def some_settings(source: random.Random, definition: ConfigDef, most: int) -> dict[str, str]:
    names = source.sample(list(definition.keys), source.randint(0, min(most, len(definition.keys))))
    settings = {name: source.choice(WORDS[definition.keys[name].kind]) for name in names}
    for unknown in ("no.such.setting", "another"):
        if source.random() < 0.03:
            settings[unknown] = "1"
    return settings


def told_by_kafka(call: Any, *arguments: object) -> tuple[str, str] | None:
    """Return the name and the text of the exception, or None."""
    try:
        call(*arguments)
    except Py4JJavaError as caught:
        name, _, text = str(caught.java_exception.toString()).partition(": ")
        kind = {
            "InvalidRequestException": "INVALID_REQUEST",
            "InvalidConfigurationException": "INVALID_CONFIG",
            "ConfigException": "INVALID_CONFIG",
        }
        return kind[name.rpartition(".")[2]], text
    return None


def told_here(call: Any, *arguments: object) -> tuple[str, str] | None:
    try:
        call(*arguments)
    except ApiError as error:
        return error.name, error.message
    return None


@pytest.mark.parametrize("broker", BROKERS)
def test_sets_of_a_group(oracle: Oracle, broker: dict[str, str]) -> None:
    source = random.Random(51)
    real = oracle.java_class(GROUP_CONFIG)
    config = oracle.java_class("kafka.server.KafkaConfig").fromProps(oracle.properties({**NODE, **broker}), False)
    limits = broker_group_settings(broker)
    refused = 0
    for _ in range(400):
        settings = some_settings(source, GROUP_CONFIG_DEF, source.choice([1, 1, 2, 6]))
        told = told_by_kafka(real.validate, settings, config.groupCoordinatorConfig(), config.shareGroupConfig())
        assert told_here(validate_group_config, settings, limits) == told, settings
        refused += told is not None
    assert 100 < refused < 380


def test_definitions_and_defaults(oracle: Oracle) -> None:
    real = oracle.java_class(GROUP_CONFIG)
    assert set(GROUP_CONFIG_DEF.keys) == set(real.CONFIG_DEF.names())
    defaults = real.CONFIG_DEF.defaultValues()
    for name, key in GROUP_CONFIG_DEF.keys.items():
        assert key.default == defaults.get(name), name
        synonym = real.brokerSynonym(name)
        assert broker_synonym(name) == (synonym.get() if synonym.isPresent() else None), name
    given = {**NODE, **BROKERS[1]}
    config = oracle.java_class("kafka.server.KafkaConfig").fromProps(oracle.properties(given), False)
    assert group_defaults(BrokerConfig.accept(given).values) == dict(config.extractGroupConfigMap())


def test_sets_of_a_subscription(oracle: Oracle) -> None:
    source = random.Random(52)
    real = oracle.java_class(CLIENT_METRICS)
    refused = 0
    for _ in range(600):
        settings = some_settings(source, CLIENT_METRICS_CONFIG_DEF, 3)
        name = source.choice(["", "mine", "mine", "mine", "mine"])
        told = told_by_kafka(real.validate, name, settings)
        assert told_here(validate_client_metrics, name, settings) == told, settings
        refused += told is not None
    assert 150 < refused < 570
