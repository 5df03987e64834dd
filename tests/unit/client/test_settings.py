"""Kafka's settings of clients: what is accepted, and what is rejected with which message."""

from __future__ import annotations

from typing import Any

import pytest

from kops.client.settings import CLIENT_CONFIG_DEF, ClientSettings, parse_address, parse_addresses, read_config, unused
from kops.errors import UsageError


def test_a_mapping_and_arguments_together() -> None:
    assert read_config({"linger.ms": 1, "acks": "1"}, {"linger_ms": 2}) == {"linger.ms": 2, "acks": "1"}
    address: Any = "localhost:9092"
    with pytest.raises(UsageError, match="'localhost:9092' are not settings; allowed: a mapping by Kafka's names"):
        read_config(address, {})


def test_defaults_are_those_of_kafka() -> None:
    settings = ClientSettings.from_properties({})
    assert settings.default_api_timeout_ms == 60_000
    assert settings.request_timeout_ms == 30_000
    assert settings.metadata_recovery_strategy == "rebootstrap"
    assert (settings.acks, settings.enable_idempotence, settings.linger_ms, settings.batch_size) == ("-1", True, 5, 16384)
    assert (settings.fetch_max_bytes, settings.isolation_level) == (52_428_800, "read_uncommitted")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("reqest.timeout.ms", "1", "unknown setting reqest.timeout.ms; did you mean request.timeout.ms"),
        ("request.timeout.ms", "soon", "request.timeout.ms=soon: not a 32-bit integer; allowed: 0 or more"),
        ("retry.backoff.ms", "-1", "retry.backoff.ms=-1: not allowed; allowed: 0 or more"),
        ("security.protocol", "SASL_SSL", "security.protocol=SASL_SSL: TLS and SASL are not supported yet; allowed: PLAINTEXT"),
        ("security.protocol", "TELNET", "security.protocol=TELNET: no such protocol; allowed: PLAINTEXT"),
        ("ssl.truststore.location", "/x", "ssl.truststore.location: not supported: TLS and SASL are not supported yet"),
        ("sasl.jaas.config", "x", "sasl.jaas.config: not supported: TLS and SASL are not supported yet"),
        ("transaction.two.phase.commit.enable", "true", "transaction.two.phase.commit.enable: not supported: "),
        ("transactional.id", "", "transactional.id: must not be empty"),
        ("transaction.timeout.ms", "0", "transaction.timeout.ms=0: not allowed; allowed: 1 or more"),
        ("partitioner.class", "p", "partitioner.class: not supported: partitioners are Java classes"),
        ("metadata.recovery.strategy", "hope", "metadata.recovery.strategy=hope: not allowed; allowed: rebootstrap or none"),
        ("compression.gzip.level", "0", "compression.gzip.level=0: not allowed; allowed: 1 to 9, or -1"),
        ("acks", "2", "acks=2: not allowed; allowed: all or -1 or 0 or 1"),
        ("isolation.level", "serializable", "isolation.level=serializable: not allowed"),
    ],
)
def test_what_is_not_allowed_is_named(name: str, value: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        ClientSettings.from_properties({name: value})
    assert str(error.value).startswith(words)


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(UsageError, match="an idempotent producer needs acks=all"):
        ClientSettings.from_properties({"acks": "1", "enable.idempotence": "true"})
    assert not ClientSettings.from_properties({"acks": "1"}).enable_idempotence
    for name, value in (("acks", "1"), ("enable.idempotence", "false")):
        with pytest.raises(UsageError, match=r"transactional.id=t: a transactional producer needs acks=all and enable.idempotence=true"):
            ClientSettings.from_properties({"transactional.id": "t", name: value})
    with pytest.raises(UsageError, match="exclude each other"):
        ClientSettings.from_properties({"bootstrap.servers": "a:1", "bootstrap.controllers": "b:1"})


def test_levels_are_those_of_the_codec_that_is_chosen() -> None:
    levels = {"compression.gzip.level": "5", "compression.zstd.level": "-7", "compression.lz4.level": "3"}
    found = {
        codec: ClientSettings.from_properties({**levels, "compression.type": codec}).compression_level
        for codec in ("none", "gzip", "snappy", "lz4", "zstd")
    }
    assert found == {"none": None, "gzip": 5, "snappy": None, "lz4": 3, "zstd": -7}
    assert ClientSettings.from_properties({"compression.type": "gzip"}).compression_level is None


def test_what_has_no_effect_is_told() -> None:
    properties = {"group.id": "g", "linger.ms": "1", "key.serializer": "S"}
    ClientSettings.from_properties(properties)
    assert unused(properties) == ["group.id", "key.serializer"]
    assert set(CLIENT_CONFIG_DEF.keys) > set(properties)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("a", ("a", 9092)),
        ("a:1", ("a", 1)),
        (" PLAINTEXT://a:1 ", ("a", 1)),
        ("[::1]:19092", ("::1", 19092)),
        ("[::1]", ("::1", 9092)),
        ("::1", ("::1", 9092)),
        ("10.0.0.1:65535", ("10.0.0.1", 65535)),
    ],
)
def test_addresses(text: str, address: tuple[str, int]) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize("text", ["", ":1", "a:", "a:x", "a:0", "a:65536", "[::1", "[::1]x", "a:1²"])
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(UsageError, match="is not the address of a server; allowed: host:port, or host for port 9092"):
        parse_address(text)


def test_lists_of_addresses() -> None:
    assert parse_addresses(["a:1,b", "a:1", " c:3 ,"]) == [("a", 1), ("b", 9092), ("c", 3)]
    with pytest.raises(UsageError, match="no address"):
        parse_addresses([" , "])
