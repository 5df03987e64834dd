"""A node's settings: what is derived from them, and what is rejected for which reason."""

from __future__ import annotations

import pytest

from kops.config import BrokerConfig, Endpoint, read_properties, topic_config
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF, SETTINGS
from kops.errors import ApiError, UsageError
from tests.support.nodes.node_properties import COMBINED, KAFKA_FILES

BROKER = {
    "process.roles": "broker",
    "node.id": "7",
    "listeners": "INTERNAL://0.0.0.0:9092,EXTERNAL://:9094",
    "advertised.listeners": "INTERNAL://b7:9092,EXTERNAL://public:19094",
    "listener.security.protocol.map": "INTERNAL:PLAINTEXT, EXTERNAL:plaintext,C:PLAINTEXT",
    "inter.broker.listener.name": "internal",
    "controller.listener.names": "C",
    "controller.quorum.bootstrap.servers": "c1:9093,[::1]:9094",
}


def test_a_node_of_both_roles() -> None:
    config = BrokerConfig.from_properties(COMBINED)
    assert (config.node_id, config["broker.id"], sorted(config.roles)) == (1, 1, ["broker", "controller"])
    assert config.listeners == (Endpoint("PLAINTEXT", "", 9092, "PLAINTEXT"), Endpoint("CONTROLLER", "", 9093, "PLAINTEXT"))
    assert (config.broker_listeners, config.controller_listeners) == (config.listeners[:1], config.listeners[1:])
    assert config.advertised_listeners == config.listeners[:1]
    assert config.advertised_controller_listeners == (Endpoint("CONTROLLER", "host1", 9093, "PLAINTEXT"),)
    assert config.inter_broker_listener_name == "PLAINTEXT"
    assert config.quorum_voters == {1: ("host1", 9093), 2: ("host2", 9093)}
    assert (config.log_dirs, config.metadata_log_dir) == (("/tmp/kafka-logs",), "/tmp/kafka-logs")
    assert (config.unused, config.warnings, config.rack) == ([], [], None)


def test_a_broker() -> None:
    config = BrokerConfig.from_properties({**BROKER, "log.dirs": "/a, /b", "metadata.log.dir": "/m", "broker.rack": " r1 "})
    assert config.is_broker
    assert not config.is_controller
    assert [endpoint[:3] for endpoint in config.listeners] == [("INTERNAL", "0.0.0.0", 9092), ("EXTERNAL", "", 9094)]
    assert [endpoint[:3] for endpoint in config.advertised_listeners] == [("INTERNAL", "b7", 9092), ("EXTERNAL", "public", 19094)]
    assert (config.inter_broker_listener_name, config.inter_broker_security_protocol) == ("INTERNAL", "PLAINTEXT")
    assert config.quorum_bootstrap_servers == [("c1", 9093), ("::1", 9094)]
    assert (config.log_dirs, config.metadata_log_dir, config.rack) == (("/a", "/b"), "/m", "r1")
    assert config.advertised_controller_listeners == ()


def test_defaults_of_topics() -> None:
    given = {
        "log.retention.hours": "5",
        "log.retention.minutes": "7",
        "log.roll.hours": "2",
        "log.flush.scheduler.interval.ms": "9",
        "num.partitions": "3",
    }
    config = BrokerConfig.from_properties(COMBINED | given)
    assert config.topic_defaults() == {name: text for name, text in given.items() if name != "num.partitions"}
    topics = config.default_topic_config
    assert (topics.retention_ms, topics.segment_ms, topics.flush_ms) == (420_000, 7_200_000, 9)
    assert topics == topic_config(broker=config.topic_defaults())
    assert BrokerConfig.from_properties(COMBINED | {"log.retention.ms": "-5"}).default_topic_config.retention_ms == -1


def test_what_is_given_and_has_no_effect() -> None:
    given = {
        "num.io.threads": "4",
        "num.partition": "2",
        "listener.name.plaintext.max.connections": "5",
        "listener.name.other.max.connections": "5",
    }
    config = BrokerConfig.from_properties(COMBINED | given)
    assert [name for name, _ in config.unused] == ["num.io.threads", "num.partition", "listener.name.other.max.connections"]
    assert config.listener_value("PLAINTEXT", "max.connections") == 5
    assert config.listener_value("CONTROLLER", "max.connections") == 2**31 - 1


def test_warnings() -> None:
    late = BROKER | {"broker.heartbeat.interval.ms": "5000", "num.partitions": "2", "controller.listener.names": "C,D"}
    late["listener.security.protocol.map"] += ",D:PLAINTEXT"
    assert [warning.split()[0] for warning in BrokerConfig.from_properties(late).warnings] == [
        "broker.heartbeat.interval.ms",
        "controller.listener.names:",
        "num.partitions",
    ]


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"num.partitions": "0"}, "Invalid value 0 for configuration num.partitions: Value must be at least 1"),
        ({"node.id": ""}, "Invalid value  for configuration broker.id: Not a number of type INT"),
        ({"log.roll.ms": "0"}, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        ({"log.flush.interval.ms": "-1"}, "Invalid value -1 for configuration flush.ms: Value must be at least 0"),
        ({"inter.broker.listener.name": "X"}, "Listener with name X defined in inter.broker.listener.name not found in"),
        ({"controller.quorum.voters": "3@h:1"}, "the node id 1 must be included in the set of voters controller.quorum.voters=Set(3)"),
        ({"remote.log.storage.system.enable": "true"}, "remote.log.storage.system.enable=true: there is no remote storage; allowed: false"),
        ({"authorizer.class.name": "X"}, "authorizer.class.name=X: there is no authorizer"),
        ({"listeners": "PLAINTEXT://:70000,CONTROLLER://:9093"}, "port 70000 of PLAINTEXT is not a port; allowed: 0 to 65535"),
        (
            {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"},
            "listener CONTROLLER: SSL is not served; allowed in listener.security.protocol.map: PLAINTEXT",
        ),
    ],
)
def test_what_is_refused(change: dict[str, str], told: str) -> None:
    with pytest.raises(UsageError) as error:
        BrokerConfig.from_properties(COMBINED | change)
    assert told in str(error.value)


@pytest.mark.parametrize(("name", "roles"), [("server", ["broker", "controller"]), ("broker", ["broker"]), ("controller", ["controller"])])
def test_kafkas_own_files(name: str, roles: list[str]) -> None:
    config = BrokerConfig.from_properties(read_properties(KAFKA_FILES[f"{name}.properties"]))
    assert sorted(config.roles) == roles
    told = dict(config.unused)
    assert told["num.network.threads"] == "one event loop and its side threads do the work of Kafka's thread pools"
    assert "log.retention.hours" not in told


def test_what_is_missing() -> None:
    with pytest.raises(ApiError, match=r'^Missing required configuration "node.id" which has no default value\.$'):
        BrokerConfig.accept({"process.roles": "broker"})


def test_every_setting_has_a_mark_and_a_default_that_it_allows() -> None:
    assert len(SETTINGS) == len(KAFKA_CONFIG_DEF.keys) == 360
    for setting in SETTINGS:
        assert setting.mark.effect == "used" or setting.mark.why
        if not setting.key.required:
            assert setting.key.accept(setting.key.default) == setting.key.default
