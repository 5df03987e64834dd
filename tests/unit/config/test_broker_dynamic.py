"""Settings that change at run time: which may change, their values then, and a broker's description of them."""

from __future__ import annotations

import pytest

from kops.config import BrokerConfig
from kops.config.broker.describe import (
    BROKER_SOURCE,
    CLUSTER_SOURCE,
    DEFAULT_SOURCE,
    FILE_SOURCE,
    TOPIC_SOURCE,
    describe_broker,
    describe_cluster,
    describe_topic,
)
from kops.config.broker.dynamic import DynamicConfig
from kops.config.broker.dynamic_keys import config_key, synonyms
from kops.errors import ApiError
from tests.support.nodes.node_properties import COMBINED


def dynamic(**properties: str) -> DynamicConfig:
    given = {name.replace("_", "."): text for name, text in properties.items()}
    return DynamicConfig(BrokerConfig.from_properties(COMBINED | given))


def test_a_nodes_settings_count_before_the_clusters_and_the_files() -> None:
    config = dynamic(log_retention_hours="1", num_io_threads="4")
    change = config.update_cluster({"log.retention.ms": "5000", "message.max.bytes": "77"})
    assert change.changed == {"log.retention.ms", "log.retention.hours", "message.max.bytes"}
    assert (change.old["message.max.bytes"], change.new["message.max.bytes"]) == (1_048_588, 77)
    assert config.current.default_topic_config.retention_ms == 5000
    config.update_broker({"log.retention.ms": "6000"})
    assert config.current.default_topic_config.retention_ms == 6000
    assert config.update_broker({}).changed == {"log.retention.ms"}
    assert config.current.default_topic_config.retention_ms == 5000
    assert config.update_cluster({}).new.originals == config.static.originals


def test_nothing_changes_where_nothing_differs() -> None:
    config = dynamic()
    change = config.update_cluster({})
    assert change.new is config.static
    assert not change.changed
    assert not change.notes


def test_stored_settings_that_do_not_count() -> None:
    config = dynamic()
    stored = {"log.segment.bytes": "1", "node.id": "9", "ssl.keystore.type": "PEM", "listeners": "PLAINTEXT://:1", "num.io.threads": "9"}
    change = config.update_cluster(stored)
    assert config.cluster == {"num.io.threads": "9"}
    assert [note.partition(":")[0] for note in change.notes] == [
        "Dynamic default cluster config contains invalid values in",
        "Non-dynamic configs will be ignored",
        "Security configs can be dynamically updated only using listener prefix, base configs will be ignored",
        "Per-broker configs defined at default cluster level will be ignored",
    ]


def test_a_stored_setting_that_cannot_be_applied() -> None:
    config = dynamic(num_io_threads="4")
    with pytest.raises(ApiError, match="Invalid dynamic configuration"):
        config.update_cluster({"num.io.threads": "9"})
    assert config.current is config.static
    assert config.update_cluster({"num.io.threads": "8"}).new["num.io.threads"] == 8


@pytest.mark.parametrize(
    ("settings", "per_broker", "told"),
    [
        ({"node.id": "2"}, True, "Cannot update these configs dynamically: [node.id]"),
        ({"log.retention.hours": "2"}, False, "Cannot update these configs dynamically: [log.retention.hours]"),
        ({"cordoned.log.dirs": "*"}, False, "Cannot update these configs at default cluster level, broker id must be specified"),
        ({"ssl.keystore.type": "JKS"}, True, "These security configs can be dynamically updated only per-listener"),
        ({"listener.name.plaintext.max.connections": "-1"}, True, "Invalid value -1 for configuration max.connections"),
        ({"log.roll.ms": "0"}, False, "requirement failed: log.roll.ms must be greater than or equal to 1"),
        ({"background.threads": "21"}, False, "Invalid dynamic configuration"),
        ({"log.local.retention.ms": "-1"}, False, "Invalid dynamic configuration"),
        ({"metric.reporters": "com.example.Mine"}, False, "Invalid dynamic configuration"),
        ({"remote.log.reader.threads": "21"}, False, "Invalid dynamic configuration"),
        ({"listeners": "CONTROLLER://:9093"}, True, "There must be at least one broker advertised listener"),
        ({"config.providers": "env"}, False, "config providers are Java classes"),
    ],
)
def test_what_may_not_be_set(settings: dict[str, str], per_broker: bool, told: str) -> None:
    with pytest.raises(ApiError) as error:
        dynamic().validate(settings, per_broker=per_broker)
    assert error.value.name == "INVALID_REQUEST"
    assert told in error.value.message


def test_what_may_be_set() -> None:
    dynamic().validate({"listener.name.plaintext.max.connections": "5", "unclean.leader.election.enable": "true"}, per_broker=True)
    # As in Kafka, only the listeners' own keys cause a check of what may change on an open listener.
    dynamic().validate({"listener.name.plaintext.sasl.jaas.config": "x"}, per_broker=True)
    dynamic().validate({"leader.replication.throttled.rate": "5", "some.own.setting": "x"}, per_broker=False)


def test_intervals_of_assignments_stay_within_their_limits() -> None:
    config = dynamic(group_consumer_max_assignment_interval_ms="3000")
    change = config.update_cluster({"group.consumer.assignment.interval.ms": "9000"})
    assert change.new["group.consumer.assignment.interval.ms"] == 3000


def test_synonyms() -> None:
    assert synonyms("log.retention.minutes") == ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    assert synonyms("log.flush.scheduler.interval.ms") == ("log.flush.scheduler.interval.ms",)
    assert synonyms("listener.name.a.plain.sasl.jaas.config") == ("listener.name.a.plain.sasl.jaas.config", "sasl.jaas.config")
    assert synonyms("listener.name.a.ssl.protocol", listeners=False) == ("listener.name.a.ssl.protocol",)
    assert (config_key("x"), config_key("listener.name.a.x")) == (None, None)


def test_a_broker_described() -> None:
    config = dynamic(log_retention_hours="1", ssl_keystore_password="secret", my_own="x")
    config.update_cluster({"log.retention.ms": "5000"})
    config.update_broker({"log.retention.ms": "6000"})
    found = {setting.name: setting for setting in describe_broker(config)}
    retention = found["log.retention.ms"]
    assert (retention.value, retention.source, retention.is_read_only, retention.type_id) == ("6000", BROKER_SOURCE, False, 5)
    assert [tuple(synonym) for synonym in retention.synonyms] == [
        ("log.retention.ms", "6000", BROKER_SOURCE),
        ("log.retention.ms", "5000", CLUSTER_SOURCE),
        ("log.retention.hours", "1", FILE_SOURCE),
        ("log.retention.hours", "168", DEFAULT_SOURCE),
    ]
    password, own = found["ssl.keystore.password"], found["my.own"]
    assert (password.value, password.is_sensitive, password.synonyms[0].value, password.source) == (None, True, None, FILE_SOURCE)
    assert (own.value, own.is_sensitive, own.is_read_only, own.type_id) == (None, True, True, 0)
    assert "unstable.api.versions.enable" not in found
    assert [setting.name for setting in describe_broker(config, ["node.id", "listeners"])] == ["node.id", "listeners"]
    assert [(setting.name, setting.value, len(setting.synonyms)) for setting in describe_cluster(config)] == [
        ("log.retention.ms", "5000", 1)
    ]


def test_a_topic_described() -> None:
    config = dynamic(log_roll_hours="2", log_cleanup_policy="compact,delete")
    own = {"retention.ms": "7", "internal.segment.bytes": "9000", "no.such": "1"}
    found = {setting.name: setting for setting in describe_topic(config, own)}
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("7", TOPIC_SOURCE)
    assert (found["cleanup.policy"].value, found["cleanup.policy"].source) == ("compact,delete", FILE_SOURCE)
    # The file sets hours, and these are not a synonym of the milliseconds, which are unset.
    assert (found["segment.ms"].value, found["segment.ms"].source) == ("7200000", DEFAULT_SOURCE)
    assert (found["internal.segment.bytes"].value, found["internal.segment.bytes"].type_id) == ("9000", 3)
    assert (found["no.such"].value, found["no.such"].is_sensitive) == (None, True)
    assert len(found) == 35
