"""The settings of a topic against Kafka's LogConfig: random sets that both reject with the same text, or accept with the same values."""

from __future__ import annotations

import random
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, server_synonyms
from kops.config.topic_validation import validate_topic_config
from kops.config.values.definition import ConfigKey
from kops.config.values.java import double_text
from kops.errors import ApiError
from tests.support.kafka.oracle import Oracle

LOG_CONFIG = "org.apache.kafka.storage.internals.log.LogConfig"
REFUSALS = ("org.apache.kafka.common.errors.InvalidConfigurationException: ", "org.apache.kafka.common.config.ConfigException: ")
NUMBERS = ["0", "1", "-1", "-2", "-3", "9", "10", "17", "22", "23", "4096", "1048575", "1048576", "604800000", "9223372036854775807"]
WORDS = ["", " ", "x", "1.5", "1e10", "NaN", " 7 ", "true", "false", "2147483648", "a,,b", "*", "0:1, 2:3", "1:", "é"]
ALLOWED = {
    "boolean": ["true", "false", " TRUE ", "True"],
    "int": NUMBERS,
    "long": NUMBERS,
    "double": ["0", "1", "0.25", "1.5", "-0.0001", "1e-5", "NaN", "12345678.5", "0x1p-3"],
    "string": ["producer", "gzip", "zstd", "CreateTime", "LogAppendTime", "none"],
    "list": ["delete", "compact", "compact,delete", "delete , delete", "", "delete,", ",", "*", "0:1", "0:1,3:2", "0:x"],
}


def some_value(source: random.Random, key: ConfigKey) -> str:
    return source.choice(WORDS) if source.random() < 0.03 else source.choice(ALLOWED[key.kind])


def some_settings(source: random.Random, most: int) -> dict[str, str]:
    names = source.sample(list(TOPIC_CONFIG_DEF.keys), source.randint(0, most))
    settings = {name: some_value(source, TOPIC_CONFIG_DEF.keys[name]) for name in names}
    if source.random() < 0.05:
        settings["no.such.setting"] = "1"
    return settings


def allowed_settings(source: random.Random, most: int) -> dict[str, str]:
    """Return settings that are each allowed alone, so that only their combination is judged."""
    found = {}
    for name, text in some_settings(source, most).items():
        try:
            TOPIC_CONFIG_DEF.keys[name].accept(text)
        except (KeyError, ApiError):
            continue
        found[name] = text
    return found


def remote_settings(source: random.Random) -> dict[str, str]:
    names = ["remote.storage.enable", "retention.ms", "retention.bytes", "local.retention.ms", "local.retention.bytes"]
    names += ["remote.log.copy.disable", "remote.log.delete.on.disable", "cleanup.policy", "min.compaction.lag.ms", "max.compaction.lag.ms"]
    choices = {
        "boolean": ["true", "true", "false"],
        "long": ["-2", "-1", "5", "6", "7"],
        "list": ["delete", "delete", "", "compact,delete"],
    }
    settings = {name: source.choice(choices[TOPIC_CONFIG_DEF.keys[name].kind]) for name in names if source.random() < 0.6}
    return {name: text for name, text in settings.items() if is_allowed(name, text)}


def is_allowed(name: str, text: str) -> bool:
    try:
        TOPIC_CONFIG_DEF.keys[name].accept(text)
    except ApiError:
        return False
    return True


def plain(value: Any) -> object:
    """Return a value of the JVM that can be compared: NaN is equal to itself here."""
    if isinstance(value, float):
        return double_text(value)
    return list(value) if hasattr(value, "iterator") or isinstance(value, list) else value


def refusal(call: Any, *arguments: object) -> str | None:
    try:
        call(*arguments)
    except Py4JJavaError as caught:
        text = str(caught.java_exception.toString())
        assert text.startswith(REFUSALS), text
        return text.partition(": ")[2]
    return None


def ours(settings: dict[str, str], **options: Any) -> str | None:
    try:
        validate_topic_config(settings, **options)
    except ApiError as error:
        assert error.name == "INVALID_CONFIG"
        return error.message
    return None


def test_whole_sets(oracle: Oracle) -> None:
    source = random.Random(41)
    real = oracle.java_class(LOG_CONFIG)
    refused = 0
    for _ in range(1500):
        settings = some_settings(source, 4)
        told = refusal(real.validate, settings)
        assert ours(settings) == told, settings
        refused += told is not None
    assert 300 < refused < 1200


def test_values(oracle: Oracle) -> None:
    source = random.Random(42)
    real = oracle.java_class(LOG_CONFIG)
    defaults = TopicConfig()
    for _ in range(150):
        settings = allowed_settings(source, 12)
        values = real(settings).values()
        config = defaults.with_overrides(settings)
        found = {name: plain(value) for name, value in config.values.items()}
        assert found == {str(name): plain(values.get(name)) for name in TOPIC_CONFIG_DEF.keys}, settings
        assert config.overridden == set(settings)


@pytest.mark.parametrize("enabled", [True, False])
def test_remote_storage_and_a_brokers_defaults(oracle: Oracle, enabled: bool) -> None:
    source = random.Random(43)
    real = oracle.java_class(LOG_CONFIG)
    refused = 0
    for _ in range(150):
        settings, existing = (
            remote_settings(source),
            source.choice([{}, {"remote.storage.enable": source.choice(["true", "false", "TRUE"])}]),
        )
        own = TopicConfig().with_overrides(source.choice([{}, {"retention.ms": "6", "retention.bytes": "6"}]))
        told = refusal(real.validate, existing, settings, own.values, enabled)
        assert ours(settings, existing=existing, broker=own.values, remote_storage_enabled=enabled) == told, (settings, existing)
        refused += told is not None
    assert 35 < refused < 130


def test_importance_and_synonyms(oracle: Oracle) -> None:
    keys = oracle.java_class(LOG_CONFIG).configKeys()
    synonyms = oracle.java_class("org.apache.kafka.server.config.ServerTopicConfigSynonyms").ALL_TOPIC_CONFIG_SYNONYMS
    for name, key in TOPIC_CONFIG_DEF.keys.items():
        assert key.importance == str(get_field(keys.get(name), "importance").toString()).lower(), name
        real = synonyms.get(name)
        assert server_synonyms(name) == (() if real is None else tuple(synonym.name() for synonym in real)), name
