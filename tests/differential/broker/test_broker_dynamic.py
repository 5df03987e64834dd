"""Settings that change at run time against Kafka's DynamicBrokerConfig, and their descriptions against its ConfigHelper."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Mapping
from typing import Any

from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.config import BrokerConfig, read_properties
from kops.config.broker.describe import DescribedSetting, describe_broker, describe_cluster, describe_topic
from kops.config.broker.dynamic import DynamicConfig
from kops.config.broker.dynamic_keys import CLUSTER_WIDE, DYNAMIC, DYNAMIC_CONFIG_DEF, PER_BROKER, config_key, synonyms
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.topic import TOPIC_CONFIG_DEF
from kops.errors import ApiError
from tests.support.kafka.manual_jvm import constant, proxy
from tests.support.kafka.oracle import Oracle
from tests.support.nodes.node_properties import BASES, BROKER, COMBINED, some_value

DYNAMIC_BROKER_CONFIG = "org.apache.kafka.server.config.DynamicBrokerConfig"
# Only Kafka's JVM can know whether a class exists.
_OF_JAVA = {"metric.reporters", "config.providers", "principal.builder.class", "ssl.engine.factory.class"}
LISTENER_KEYS = ("max.connections", "max.connection.creation.rate", "num.network.threads", "ssl.keystore.type", "sasl.jaas.config", "x.y")


def test_keys(oracle: Oracle) -> None:
    real = oracle.java_class(DYNAMIC_BROKER_CONFIG)
    modes = {str(name): str(mode) for name, mode in dict(real.dynamicConfigUpdateModes()).items()}
    assert modes == {name: "per-broker" if name in PER_BROKER else "cluster-wide" for name in DYNAMIC}
    assert not PER_BROKER & CLUSTER_WIDE
    broker = oracle.java_class("org.apache.kafka.server.config.DynamicConfig$Broker")
    assert [str(name) for name in broker.configKeys()] == list(DYNAMIC_CONFIG_DEF.keys)
    for name in [*KAFKA_CONFIG_DEF.keys, *DYNAMIC, "listener.name.a.ssl.protocol", "listener.name.a.plain.sasl.jaas.config", "no.such"]:
        for listeners in (True, False):
            assert list(synonyms(name, listeners=listeners)) == [str(found) for found in real.brokerConfigSynonyms(name, listeners)]


def test_types(oracle: Oracle) -> None:
    real = oracle.java_class("kafka.server.KafkaConfig")
    prefixed = [f"listener.name.a.{name}" for name in ("max.connections", "plain.sasl.jaas.config", "ssl.key.password", "x")]
    for name in [*KAFKA_CONFIG_DEF.keys, *DYNAMIC, *prefixed, "retention.ms"]:
        found = real.configType(name)
        own = config_key(name)
        assert (None if found.isEmpty() else str(found.get().name()).lower()) == (None if own is None else own.kind), name


class RealDynamic:
    """Kafka's DynamicBrokerConfig of one node. `with_parts` adds the parts that check a change before it is made."""

    def __init__(self, oracle: Oracle, properties: Mapping[str, str], *, with_parts: bool = False) -> None:
        self._oracle = oracle
        self.config = oracle.java_class("kafka.server.KafkaConfig").fromProps(oracle.properties(properties), False)
        self.dynamic = self.config.dynamicConfig()
        self.dynamic.initialize(oracle.jvm.scala.Option.empty())
        if with_parts:
            server = proxy(oracle, "kafka.server.KafkaBroker", constant(oracle, self.config))
            jvm = oracle.jvm.kafka.server
            parts = [jvm.BrokerDynamicThreadPool(server), jvm.DynamicLogConfig(None, None), jvm.DynamicListenerConfig(server)]
            for part in [*parts, jvm.DynamicRemoteLogConfig(server)]:
                self.dynamic.addBrokerReconfigurable(part)

    def validate(self, settings: Mapping[str, str], per_broker: bool) -> str | None:
        """Return the first line of the rejection, or None."""
        try:
            self.dynamic.validate(self._oracle.properties(settings), per_broker)
        except Py4JJavaError as caught:
            return str(caught.java_exception.getMessage()).splitlines()[0]
        return None

    def originals(self) -> dict[str, str]:
        """Return the texts that are in effect."""
        properties, writer = self._oracle.jvm.java.util.Properties(), self._oracle.jvm.java.io.StringWriter()
        properties.putAll(self.config.originals())
        properties.store(writer, None)
        return read_properties(str(writer.toString()))

    def describe(self, name: str, names: list[str] | None) -> dict[str, dict[str, Any]]:
        """Return ConfigHelper's answer about the broker, or about the defaults of all brokers if the name is ""."""
        message = self._oracle.jvm.org.apache.kafka.common.message
        resource = message.DescribeConfigsRequestData.DescribeConfigsResource()
        resource.setResourceType(self._oracle.jvm.java.lang.Byte.valueOf("4")).setResourceName(name).setConfigurationKeys(names)
        helper = self._oracle.jvm.kafka.server.ConfigHelper(None, self.config, None)
        resources = self._oracle.jvm.scala.jdk.javaapi.CollectionConverters.asScala(self._oracle.jvm.java.util.List.of(resource)).toList()
        result = helper.describeConfigs(resources, True, False).head()
        response = message.DescribeConfigsResponseData().setResults(self._oracle.jvm.java.util.List.of(result))
        return described(self._oracle, response)


def described(oracle: Oracle, response: Any) -> dict[str, dict[str, Any]]:
    """Return the entries of the only result of a DescribeConfigsResponseData by name."""
    converter = oracle.java_class("org.apache.kafka.common.message.DescribeConfigsResponseDataJsonConverter")
    found = json.loads(str(converter.write(response, oracle.short(4)).toString()))["results"][0]
    assert found["errorCode"] == 0, found
    return {entry["name"]: entry for entry in found["configs"]}


def as_json(setting: DescribedSetting) -> dict[str, Any]:
    """Return an entry as Kafka's converter writes it."""
    return {
        "name": setting.name,
        "value": setting.value,
        "readOnly": setting.is_read_only,
        "configSource": setting.source,
        "isSensitive": setting.is_sensitive,
        "synonyms": [synonym._asdict() for synonym in setting.synonyms],
        "configType": setting.type_id,
        "documentation": None,
    }


def some_settings(source: random.Random) -> dict[str, str]:
    """Return settings to change at run time, mostly ones that may be changed. No key occurs both with and without a listener, because it is
    chance which of the two Kafka checks.
    """
    settings = {}
    names = sorted(name for name in DYNAMIC if is_comparable(name))
    for _ in range(source.randint(1, 4)):
        draw = source.random()
        if draw < 0.1:
            own = source.choice([key for key in LISTENER_KEYS if key not in settings])
            settings[f"listener.name.{source.choice(('plaintext', 'other'))}.{own}"] = source.choice(("1", "5", "x", "JKS"))
            continue
        name = source.choice([name for name in KAFKA_CONFIG_DEF.keys if is_comparable(name)] if draw < 0.16 else names)
        key = DYNAMIC_CONFIG_DEF.keys.get(name) or KAFKA_CONFIG_DEF.keys[name]
        if not any(other.endswith(f".{name}") for other in settings):
            settings[name] = some_value(source, key)
    return settings


def is_comparable(name: str) -> bool:
    """Return whether the result does not depend on Java's classes."""
    known = KAFKA_CONFIG_DEF.keys.get(name)
    return name not in _OF_JAVA and (known is None or known.kind != "class")


HAND_MADE: tuple[dict[str, str], ...] = (
    {},
    {"num.io.threads": "16"},
    {"num.io.threads": "17"},
    {"num.io.threads": "3"},
    {"num.network.threads": "100"},
    {"remote.log.reader.threads": "21"},
    {"log.retention.ms": "100", "log.local.retention.ms": "101"},
    {"log.retention.ms": "100", "log.local.retention.ms": "-1"},
    {"log.retention.bytes": "100", "log.local.retention.bytes": "101"},
    {"log.retention.ms": "0"},
    {"cordoned.log.dirs": "/x"},
    {"cordoned.log.dirs": "*"},
    {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093,B://:9095"},
    {"listeners": "PLAINTEXT://:9099,CONTROLLER://:9093"},
    {"listeners": "CONTROLLER://:9093"},
    {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL"},
    {"listener.name.plaintext.ssl.protocol": "x"},
    {"listener.name.plaintext.ssl.protocol": "x", "listeners": "PLAINTEXT://:9099,CONTROLLER://:9093"},
    {"ssl.keystore.type": "JKS", "ssl.key.password": "x"},
    {"node.id": "1", "log.retention.hours": "5"},
    {"unknown": "1"},
    {"max.connections.per.ip.overrides": "a"},
)


def in_order(text: str | None) -> str | None:
    """Return the text with the elements of a Java set in order."""
    found = re.fullmatch(r"(.*: \[)(.*)\]", text or "")
    return text if found is None else found[1] + ", ".join(sorted(found[2].split(", ")))


def told(settings: Mapping[str, str], own: DynamicConfig, per_broker: bool) -> str | None:
    try:
        own.validate(settings, per_broker=per_broker)
    except ApiError as error:
        assert error.name == "INVALID_REQUEST"
        return error.message.splitlines()[0]
    return None


def test_what_may_be_set(oracle: Oracle) -> None:
    source = random.Random(61)
    refused = 0
    for base in (COMBINED, BROKER):
        own, real = DynamicConfig(BrokerConfig.accept(base)), RealDynamic(oracle, base, with_parts=True)
        for settings in [*HAND_MADE, *(some_settings(source) for _ in range(150))]:
            for per_broker in (True, False):
                expected = real.validate(settings, per_broker)
                found = told(settings, own, per_broker)
                if expected is None and found is not None and "is not served" in found:
                    continue  # Kafka has TLS and SASL
                assert in_order(found) == in_order(expected), settings
                refused += expected is not None
    assert 150 < refused < 600


def test_changes(oracle: Oracle) -> None:
    """After sequences of changes both have the same settings. The changes include ones that are not allowed, and stored settings that have
    no effect.
    """
    source = random.Random(62)
    applied = 0
    for _ in range(25):
        base = dict(source.choice(BASES)) | {"log.retention.hours": "3", "log.roll.ms": "9000", "num.io.threads": "8"}
        own, real = DynamicConfig(BrokerConfig.accept(base)), RealDynamic(oracle, base)
        for _ in range(6):
            settings = {name: text for name, text in some_settings(source).items() if name not in NOT_COMPARED}
            per_broker = source.random() < 0.5
            try:
                (own.update_broker if per_broker else own.update_cluster)(settings)
                applied += 1
            except ApiError:
                pass
            if per_broker:
                real.dynamic.updateBrokerConfig(1, oracle.properties(settings), False)
            else:
                real.dynamic.updateDefaultConfig(oracle.properties(settings), False)
            assert own.current.originals == real.originals(), (base, settings)
    assert applied > 100


# No part checks a change here. `test_what_may_be_set` compares what the parts reject.
NOT_COMPARED = {
    "num.io.threads",
    "num.replica.fetchers",
    "num.recovery.threads.per.data.dir",
    "background.threads",
    "log.cleaner.threads",
    "log.local.retention.ms",
    "log.local.retention.bytes",
    "listeners",
    "listener.security.protocol.map",
    *(name for name in DYNAMIC if name.startswith(("remote.", "sasl.", "ssl."))),
}


def test_brokers_described(oracle: Oracle) -> None:
    base = COMBINED | {"log.retention.hours": "3", "log.roll.ms": "9000", "ssl.keystore.password": "secret", "own.setting": "x"}
    base |= {"listener.name.plaintext.max.connections": "6", "unstable.api.versions.enable": "true", "log.cleanup.policy": "compact,delete"}
    own, real = DynamicConfig(BrokerConfig.accept(base)), RealDynamic(oracle, base)
    for cluster, broker in (
        ({}, {}),
        ({"log.retention.ms": "5", "leader.replication.throttled.rate": "9", "max.connections": "7"}, {}),
        ({"log.retention.ms": "5"}, {"log.retention.ms": "6", "listener.name.plaintext.ssl.key.password": "p", "message.max.bytes": "78"}),
    ):
        own.update_cluster(cluster)
        own.update_broker(broker)
        real.dynamic.updateDefaultConfig(oracle.properties(cluster), False)
        real.dynamic.updateBrokerConfig(1, oracle.properties(broker), False)
        assert {setting.name: as_json(setting) for setting in describe_broker(own)} == real.describe("1", None)
        assert {setting.name: as_json(setting) for setting in describe_cluster(own)} == real.describe("", None)
        names = ["node.id", "log.retention.ms", "no.such"]
        assert [setting.name for setting in describe_broker(own, names)] == list(real.describe("1", names))


def test_topics_described(oracle: Oracle) -> None:
    base = COMBINED | {
        "log.roll.hours": "3",
        "log.retention.minutes": "7",
        "log.cleanup.policy": "compact,delete",
        "message.max.bytes": "5",
    }
    own, real = DynamicConfig(BrokerConfig.accept(base)), RealDynamic(oracle, base)
    cluster = {"log.roll.ms": "5000", "compression.type": "gzip"}
    own.update_cluster(cluster)
    real.dynamic.updateDefaultConfig(oracle.properties(cluster), False)
    helper = oracle.jvm.kafka.server.ConfigHelper(None, real.config, None)
    log_config = oracle.java_class("org.apache.kafka.storage.internals.log.LogConfig")
    message = oracle.jvm.org.apache.kafka.common.message
    for settings in ({}, {"retention.ms": "1", "cleanup.policy": "", "internal.segment.bytes": "99", "no.such": "x"}):
        properties = oracle.properties(settings)
        config = log_config.fromProps(real.config.extractLogConfigMap(), properties)
        found = {setting.name: as_json(setting) for setting in describe_topic(own, settings)}
        assert set(found) == {name for name, key in TOPIC_CONFIG_DEF.keys.items() if not key.internal} | set(settings)
        for name, entry in found.items():
            value = config.values().get(name) if name in TOPIC_CONFIG_DEF.keys else settings[name]
            result = message.DescribeConfigsResponseData.DescribeConfigsResult()
            told = helper.createTopicConfigEntry(config, properties, True, False, name, value)
            response = message.DescribeConfigsResponseData().setResults(
                oracle.jvm.java.util.List.of(result.setConfigs(oracle.jvm.java.util.List.of(told)))
            )
            assert described(oracle, response) == {name: entry}, name


def test_defaults_of_limits(oracle: Oracle) -> None:
    real = oracle.java_class("org.apache.kafka.server.config.QuotaConfig").brokerQuotaConfigs().configKeys()
    for name in real:
        assert get_field(real[name], "defaultValue") == DYNAMIC_CONFIG_DEF.keys[str(name)].default
