"""The settings of a node against Kafka's KafkaConfig: definitions, and sets of properties that both reject alike or accept with the same
values.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.config import BrokerConfig, read_properties
from kops.config.broker.listeners import Endpoint
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.values.definition import HIDDEN, ConfigKey, Value, java_text
from kops.errors import ApiError
from tests.support.kafka.oracle import Oracle
from tests.support.nodes.node_properties import BASES, KAFKA_FILES, ODD_SETS, some_properties


def default_text(key: ConfigKey) -> str | None:
    """Return ConfigDef.convertToString of a default."""
    if key.default is None:
        return None
    if isinstance(key.default, list):
        return ",".join(key.default)
    return HIDDEN if key.kind == "password" else java_text(key.default)


def test_definitions(oracle: Oracle) -> None:
    keys = oracle.java_class("kafka.server.KafkaConfig").configDef().configKeys()
    convert = oracle.java_class("org.apache.kafka.common.config.ConfigDef").convertToString
    required = oracle.java_class("org.apache.kafka.common.config.ConfigDef").NO_DEFAULT_VALUE
    real = list(keys.values())
    assert [str(get_field(key, "name")) for key in real] == list(KAFKA_CONFIG_DEF.keys)
    for key in real:
        own = KAFKA_CONFIG_DEF.keys[str(get_field(key, "name"))]
        kind, default = get_field(key, "type"), get_field(key, "defaultValue")
        assert str(kind.name()).lower() == own.kind, own.name
        assert key.hasDefault() is not own.required, own.name
        assert str(get_field(key, "importance").name()).lower() == own.importance, own.name
        assert get_field(key, "internalConfig") is own.internal, own.name
        assert (get_field(key, "validator") is None) is (own.validator is None), own.name
        if not own.required:
            if own.kind == "short":
                default = oracle.short(default)
            text = convert(default, kind) if own.kind not in ("short", "long") else (None if default is None else str(default))
            assert text == default_text(own), own.name
        else:
            assert default == required


def real_config(oracle: Oracle, properties: dict[str, str]) -> tuple[Any, str | None]:
    """Return a KafkaConfig, or the first line of the error that its constructor throws."""
    try:
        return oracle.java_class("kafka.server.KafkaConfig").fromProps(oracle.properties(properties), False), None
    except Py4JJavaError as caught:
        error = caught.java_exception
        if str(error.getClass().getName()) == "java.lang.ArithmeticException":
            return None, "log.cleaner.threads must be greater than or equal to 1"
        return None, str(error.getMessage()).splitlines()[0]


def real_texts(oracle: Oracle, values: Any) -> dict[str, str]:
    """Return a Java map of values as texts, in one call. Null values are left out."""
    texts = oracle.java_class("org.apache.kafka.common.config.ConfigDef").convertToStringMapWithPasswordValues(values)
    properties, writer = oracle.jvm.java.util.Properties(), oracle.jvm.java.io.StringWriter()
    properties.putAll(texts)
    properties.store(writer, None)
    return read_properties(str(writer.toString()))


def own_texts(values: Mapping[str, Value]) -> dict[str, str]:
    """Return values in the form of `real_texts`."""
    return {name: ",".join(value) if isinstance(value, list) else java_text(value) for name, value in values.items() if value is not None}


def endpoints(found: Any) -> list[Endpoint]:
    """Return the endpoints of a Scala sequence of Kafka's endpoints."""
    listed = [found.apply(i) for i in range(found.size())]
    return [Endpoint(str(e.listener()), e.host() or "", e.port(), str(e.securityProtocol().name())) for e in listed]


def compare(oracle: Oracle, properties: dict[str, str]) -> str | None:
    """Check that both accept the properties with the same result, or reject them with the same text. Return the text."""
    real, told = real_config(oracle, properties)
    try:
        own = BrokerConfig.accept(properties)
    except ApiError as error:
        assert error.message.splitlines()[0] == told, properties
        return told
    assert told is None, properties
    assert own_texts(own.values) == real_texts(oracle, real.values()), properties
    assert own_texts(own.topic_values()) == real_texts(oracle, real.extractLogConfigMap()), properties
    assert list(own.listeners) == endpoints(real.listeners())
    assert list(own.broker_listeners) == endpoints(real.dataPlaneListeners())
    assert list(own.controller_listeners) == endpoints(real.controllerListeners())
    assert list(own.advertised_listeners) == endpoints(real.effectiveAdvertisedBrokerListeners())
    assert list(own.advertised_controller_listeners) == endpoints(real.effectiveAdvertisedControllerListeners())
    assert own.inter_broker_listener_name == real.interBrokerListenerName().value()
    assert own.inter_broker_security_protocol == real.interBrokerSecurityProtocol().name()
    assert (list(own.log_dirs), own.metadata_log_dir) == (list(real.logDirs()), real.metadataLogDir())
    assert list(own.cordoned_log_dirs) == list(real.cordonedLogDirs())
    return None


@pytest.mark.parametrize("name", KAFKA_FILES)
def test_kafkas_files(oracle: Oracle, name: str) -> None:
    assert compare(oracle, read_properties(KAFKA_FILES[name])) is None


def test_hand_made_sets(oracle: Oracle) -> None:
    """Each set belongs to one of the three kinds of node."""
    sets = [properties for index, properties in enumerate(ODD_SETS) if index % len(BASES) == index // len(BASES) % len(BASES)]
    refused = [compare(oracle, properties) is not None for properties in sets]
    assert len(sets) > 130
    assert 60 < sum(refused) < len(sets)


@pytest.mark.slow
def test_all_hand_made_sets(oracle: Oracle) -> None:
    assert len(ODD_SETS) > 400
    assert sum(compare(oracle, properties) is not None for properties in ODD_SETS) > 200


def test_random_sets(oracle: Oracle) -> None:
    source = random.Random(51)
    told = [compare(oracle, some_properties(source)) for _ in range(100)]
    assert 30 < sum(text is not None for text in told) < 90


@pytest.mark.slow
def test_many_random_sets(oracle: Oracle, seed_count: int | None) -> None:
    source = random.Random(52)
    told = [compare(oracle, some_properties(source)) for _ in range(seed_count or 500)]
    assert len(told) / 3 < sum(text is not None for text in told) < len(told)
