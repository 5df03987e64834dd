"""The settings of clients compared with Kafka's ProducerConfig, ConsumerConfig, ShareConsumerConfig and AdminClientConfig: definitions, and
sets of settings that both reject, or accept with the same values.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.client.config.admin import ADMIN_CONFIG_DEF, admin_settings
from kops.client.config.consumer import CONSUMER_CONFIG_DEF, NOT_FOR_SHARE_GROUPS, share_consumer_settings
from kops.client.config.producer import PRODUCER_CONFIG_DEF, producer_settings
from kops.client.consumer.options import ConsumerOptions
from kops.config.values.definition import ConfigDef, ConfigKey, java_text
from kops.errors import UsageError
from tests.support.kafka.oracle import Oracle

CLIENTS = "org.apache.kafka.clients."
DEFINITIONS = {
    "producer.ProducerConfig": PRODUCER_CONFIG_DEF,
    "consumer.ConsumerConfig": CONSUMER_CONFIG_DEF,
    "admin.AdminClientConfig": ADMIN_CONFIG_DEF,
}
SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"
# Values for random sets: usual ones, limits, and invalid ones.
VALUES = {
    "acks": ["all", "-1", "0", "1", "2", "ALL", ""],
    "retries": ["0", "1", "2147483647", "-1"],
    "enable.idempotence": ["true", "false", "TRUE", "yes"],
    "max.in.flight.requests.per.connection": ["1", "5", "6", "0"],
    "transactional.id": ["t", ""],
    "transaction.timeout.ms": ["1", "60000", "a"],
    "linger.ms": ["0", "5", "90000", "-1"],
    "request.timeout.ms": ["0", "30000", "40000"],
    "reconnect.backoff.ms": ["5", "5000"],
    "reconnect.backoff.max.ms": ["1", "10000"],
    "compression.type": ["none", "gzip", "zstd", "GZIP", "lz5"],
    "compression.gzip.level": ["-1", "0", "1", "9", "10"],
    "compression.zstd.level": ["-131072", "22", "23"],
    "metadata.max.idle.ms": ["5000", "4999"],
    "metadata.recovery.strategy": ["none", "Rebootstrap", "hope"],
    "batch.size": ["0", "16384", " 77 ", "1_000"],
    "buffer.memory": ["0", "9223372036854775807", "9223372036854775808"],
    "bootstrap.servers": ["a:1", "a:1,b:2", ""],
    "partitioner.ignore.keys": ["true", "False"],
}


def default_text(key: ConfigKey) -> str | None:
    """Return ConfigDef.convertToString of a default."""
    if key.default is None:
        return None
    return ",".join(key.default) if isinstance(key.default, list) else java_text(key.default)


@pytest.mark.parametrize("name", DEFINITIONS)
def test_definitions(oracle: Oracle, name: str) -> None:
    own: ConfigDef = DEFINITIONS[name]
    real = list(oracle.java_class(CLIENTS + name).configDef().configKeys().values())
    convert = oracle.java_class("org.apache.kafka.common.config.ConfigDef").convertToString
    assert [str(get_field(key, "name")) for key in real] == list(own.keys)
    for key, mine in zip(real, own.keys.values(), strict=True):
        kind, default = get_field(key, "type"), get_field(key, "defaultValue")
        assert str(kind.name()).lower() == mine.kind, mine.name
        assert str(get_field(key, "importance").name()).lower() == mine.importance, mine.name
        assert get_field(key, "internalConfig") is mine.internal, mine.name
        assert key.hasDefault() is not mine.required, mine.name
        assert (get_field(key, "validator") is None) is (mine.validator is None), mine.name
        if not mine.required:
            # py4j turns a Java short or long into a number that convertToString does not accept.
            text = (None if default is None else str(default)) if mine.kind in ("short", "long") else convert(default, kind)
            assert (None if text is None else str(text).replace("class ", "")) == default_text(mine), mine.name


def real_producer(oracle: Oracle, given: dict[str, str]) -> dict[str, Any] | None:
    """Return the values of a ProducerConfig, or None if it rejects them."""
    try:
        config = oracle.java_class(CLIENTS + "producer.ProducerConfig")(oracle.properties(given))
    except Py4JJavaError:
        return None
    values = oracle.java_class("org.apache.kafka.common.config.ConfigDef").convertToStringMapWithPasswordValues(config.values())
    return {str(name): None if values[name] is None else str(values[name]) for name in VALUES}


@pytest.mark.parametrize("seed", range(8))
def test_sets_of_producer_settings(oracle: Oracle, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    dice = random.Random(seed)
    refused = 0
    for _ in range(12):
        names = dice.sample(sorted(VALUES), dice.randint(1, 4))
        serializers = {"key.serializer": SERIALIZER, "value.serializer": SERIALIZER}
        given = {"bootstrap.servers": "a:1", **serializers, **{name: dice.choice(VALUES[name]) for name in names}}
        real = real_producer(oracle, given)
        refused += real is None
        try:
            # KafkaProducer itself checks the delivery timeout.
            own = producer_settings({**given, "delivery.timeout.ms": 2**31 - 1})
        except UsageError:
            assert real is None, given
            continue
        assert real is not None, given
        for name, text in real.items():
            value = own[name]
            mine = ",".join(value) if isinstance(value, list) else None if value is None else java_text(value)  # type: ignore[arg-type]
            # If a word may be in any case, Kafka keeps its spelling.
            assert mine == (text.lower() if name == "metadata.recovery.strategy" and text else text), (given, name)
    assert refused


DESERIALIZER = "org.apache.kafka.common.serialization.StringDeserializer"
ANY_CLIENT = {
    "reconnect.backoff.ms": ["5", "5000", "-1"],
    "retry.backoff.ms": ["0", "100", "-1"],
    "request.timeout.ms": ["0", "30000", "70000"],
    "default.api.timeout.ms": ["29999", "60000", "-1"],
    "metadata.max.age.ms": ["0", "300000", "-1"],
    "metadata.recovery.strategy": ["none", "Rebootstrap", "hope"],
    "metadata.recovery.rebootstrap.trigger.ms": ["0", "-1"],
    "client.id": ["", "c"],
    "connections.max.idle.ms": ["-1", "5"],
    "receive.buffer.bytes": ["-1", "-2"],
    "send.buffer.bytes": ["-1", "-2"],
    "metrics.num.samples": ["1", "0"],
    "metrics.sample.window.ms": ["0", "-1"],
    "enable.metrics.push": ["true", "false", "1"],
    "socket.connection.setup.timeout.ms": ["10000", "x"],
}
READING = {
    "group.id": ["g", "", " "],
    "client.rack": ["", "r"],
    "fetch.min.bytes": ["0", "-1"],
    "fetch.max.bytes": ["0", "-1"],
    "fetch.max.wait.ms": ["0", "-1"],
    "max.partition.fetch.bytes": ["0", "-1"],
    "max.poll.records": ["1", "0"],
    "max.poll.interval.ms": ["1", "0"],
    "check.crcs": ["true", "no"],
    "allow.auto.create.topics": ["FALSE", ""],
    "share.acknowledgement.mode": ["implicit", "explicit", "EXPLICIT"],
    "share.acquire.mode": ["batch_optimized", "RECORD_LIMIT", "x"],
}
CONSUMING = {
    "group.protocol": ["classic", "CONSUMER", "share"],
    "group.remote.assignor": ["uniform", "range"],
    "group.instance.id": ["i", "", ".", "a b", "x" * 250],
    "session.timeout.ms": ["45000", "10", "-1"],
    "heartbeat.interval.ms": ["3000", "45000", "0"],
    "auto.offset.reset": ["earliest", "none", "by_duration:PT1H", "by_duration:P1Y", "by_duration:-PT1S", "EARLIEST", "first"],
    "enable.auto.commit": ["true", "false", "x"],
    "auto.commit.interval.ms": ["0", "-1"],
    "isolation.level": ["read_committed", "READ_COMMITTED", "x"],
    "exclude.internal.topics": ["true", "false"],
}
SETS: dict[str, tuple[str, dict[str, list[str]], Callable[[dict[str, object]], object]]] = {
    "consumer": ("consumer.KafkaConsumer", ANY_CLIENT | READING | CONSUMING, ConsumerOptions.of),
    "share": ("consumer.KafkaShareConsumer", ANY_CLIENT | READING | {"client.id": ["", "s"]}, share_consumer_settings),
    "admin": ("admin.Admin", ANY_CLIENT, admin_settings),
}


def kafkas_rejection(oracle: Oracle, client: str, given: dict[str, object]) -> str:
    """Return Kafka's reason for the rejection of a client, or nothing."""
    properties = oracle.properties({name: str(value) for name, value in given.items()})
    try:
        made = oracle.java_class(CLIENTS + client)
        one = made.create(properties) if client.startswith("admin") else made(properties)
    except Py4JJavaError as error:
        thrown = error.java_exception
        while thrown.getCause() is not None:
            thrown = thrown.getCause()
        return str(thrown.toString())
    one.close(oracle.java_class("java.time.Duration").ZERO)
    return ""


@pytest.mark.parametrize("kind", SETS)
def test_sets_of_settings_of_other_clients(oracle: Oracle, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """Kafka's client and that of kops accept the same sets of settings."""
    caplog.set_level(logging.CRITICAL)
    client, values, own = SETS[kind]
    dice = random.Random(kind)
    refused = 0
    for name in (*values, *[""] * 40):
        names = {name, *dice.sample(sorted(values), dice.randint(0, 2))} - {""}
        given: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", **{one: dice.choice(values[one]) for one in sorted(names)}}
        if kind != "admin":
            given |= {"key.deserializer": DESERIALIZER, "value.deserializer": DESERIALIZER}
            given.setdefault("group.id", "g")
        reason = kafkas_rejection(oracle, client, given)
        mine = ""
        try:
            own({one: value for one, value in given.items() if not one.endswith("deserializer")})
        except UsageError as error:
            mine = str(error)
        assert bool(reason) is bool(mine), (given, f"Kafka: {reason}", f"kops: {mine}")
        refused += bool(reason)
    assert refused > 10


def test_settings_that_a_share_consumer_refuses(oracle: Oracle) -> None:
    """A name alone is refused, even with the default."""
    refused = set()
    for name, key in CONSUMER_CONFIG_DEF.keys.items():
        given: dict[str, object] = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", name: default_text(key) or "x"}
        given |= {"key.deserializer": DESERIALIZER, "value.deserializer": DESERIALIZER}
        if "when using a share group" in kafkas_rejection(oracle, "consumer.KafkaShareConsumer", given):
            refused.add(name)
    assert refused == set(NOT_FOR_SHARE_GROUPS)
