"""Settings of a topic, a broker's defaults for them, and .properties files."""

from __future__ import annotations

import pytest

from kops.config.topic import (
    TOPIC_CONFIG_DEF,
    TopicConfig,
    broker_defaults,
    parse_settings,
    server_synonyms,
    topic_config,
)
from kops.config.topic_validation import validate_topic_config
from kops.config.values.definition import ConfigDef, ConfigKey
from kops.config.values.java import NumberFormatError, double_text, parse_int, parse_long, read_lines, split_spaces, trim
from kops.config.values.java_hash import HashOrder, hash_map_order, put_order, store_order, string_hash
from kops.config.values.properties import java_date, read_properties, write_properties
from kops.errors import ApiError, DecodeError, UsageError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("", {}),
        ("a=b", {"a": "b"}),
        ("  a \t=  b c  ", {"a": "b c  "}),
        ("a:b\nc d\ne", {"a": "b", "c": "d", "e": ""}),
        ("a==b\nc=:d\ne:=f", {"a": "=b", "c": ":d", "e": "=f"}),
        ("# c\n ! c\n\n\t\na=b#c", {"a": "b#c"}),
        ("a=b\\\n   c\\\r\n\td\nx=y", {"a": "bcd", "x": "y"}),
        ("a=b\\\\\nc=d", {"a": "b\\", "c": "d"}),
        ("#c\\\na=b", {"a": "b"}),
        ("a=b\\\n#c", {"a": "b#c"}),
        ("a=b\\", {"a": "b"}),
        ("\\", {"": ""}),
        ("a\\ b\\=c\\:d=e", {"a b=c:d": "e"}),
        ("a=\\t\\n\\r\\f\\q\\u00e4\\uD83D\\uDE00", {"a": "\t\n\r\fq\u00e4\U0001f600"}),
        ("a=1\ra=2", {"a": "2"}),
        ("=v", {"": "v"}),
        ("a=\\u0020b", {"a": " b"}),
    ],
)
def test_reading_properties(text: str, values: dict[str, str]) -> None:
    assert read_properties(text) == read_properties(text.encode("latin-1")) == values


def test_bytes_are_single_characters() -> None:
    assert read_properties("ä=ö".encode()) == {"\u00c3\u00a4": "\u00c3\u00b6"}


@pytest.mark.parametrize("text", ["x=1\na=\\u12", "x=1\na=\\u12g4", "x=1\na\\u=b", "x=1\na=\\u"])
def test_a_malformed_escape(text: str) -> None:
    with pytest.raises(DecodeError, match="line 2") as error:
        read_properties(text, file="f")
    assert (error.value.code, error.value.file) == ("properties", "f")


def test_writing_properties() -> None:
    values = {"a b": " c d", "k=:#!": "=:#!", "t": "\t\n\r\f\\", "ä": "\U0001f600"}
    text = write_properties(values, comments=("", "now"))
    assert text == "#\n#now\na\\ b=\\ c d\nk\\=\\:\\#\\!=\\=\\:\\#\\!\nt=\\t\\n\\r\\f\\\\\nä=\U0001f600\n"
    assert read_properties(text) == values
    assert write_properties({"ä": "\U0001f600"}, escape_unicode=True) == "\\u00E4=\\uD83D\\uDE00\n"


def test_order_and_date() -> None:
    assert store_order(["version", "cluster.id", "node.id", "directory.id"]) == ["node.id", "directory.id", "version", "cluster.id"]
    keys = ["version", "cluster.id", "node.id", "version", "directory.id"]
    assert hash_map_order(keys) == ["node.id", "directory.id", "version", "cluster.id"]


@pytest.mark.parametrize("spread", [1, 16, 7])
def test_few_keys_have_the_order_of_the_whole_hash_map(spread: int) -> None:
    """`hash_map_order` has a shortcut for few keys, which also works if they share a bucket."""
    for count in range(12):
        keys = [number * spread for number in range(count, 0, -1)]
        order: HashOrder[int] = HashOrder()
        for key in keys:
            order.before_compute_if_absent()
            order.compute_if_absent(key)
        assert hash_map_order([*keys, *keys[:1]]) == list(order)
    assert string_hash("version") == 351608024
    assert string_hash("") == 0
    assert java_date(0) == "Thu Jan 01 00:00:00 UTC 1970"
    assert java_date(1_795_259_263_999) == "Sat Nov 21 11:07:43 UTC 2026"


def test_numbers_and_lines() -> None:
    assert (parse_int("-2147483648"), parse_long("+9223372036854775807")) == (-(2**31), 2**63 - 1)
    for text in ("", "+", "2147483648", " 1", "1_0", "\U0001d7d9", "1" * 10_000):
        with pytest.raises(NumberFormatError, match="For input string"):
            parse_int(text)
    assert parse_int("0" * 10_000 + "7") == 7
    assert list(read_lines(b"a\r\nb\rc\n\nd")) == ["a", "b", "c", "", "d"]
    assert list(read_lines(b"")) == []
    assert list(read_lines(b"a" * 8191 + b"\r\nb")) == ["a" * 8191, "b"]
    assert split_spaces(" a\t\x0b b  ") == ["", "a", "b"]
    assert split_spaces("a\u00a0b") == ["a\u00a0b"]
    assert split_spaces("") == [""]
    assert trim("\0 a\u00a0 \t") == "a\u00a0"


def test_defaults_of_a_topic() -> None:
    config = TopicConfig()
    for name, default in TOPIC_CONFIG_DEF.defaults().items():
        value = getattr(config, name.replace(".", "_"))
        assert (list(value) if isinstance(value, tuple) else value) == default, name
    assert topic_config() == topic_config({}, {}) == config
    assert hash(config) == hash(TopicConfig())
    assert (config.segment_size, config.compact, config.delete, config.init_file_size) == (1 << 30, False, True, 0)


def test_overrides_over_a_broker_over_kafka() -> None:
    broker = {"log.segment.bytes": "2097152", "log.index.interval.bytes": "1", "log.dirs": "/data", "broker.id": "x"}
    config = topic_config({"index.interval.bytes": " 2 ", "cleanup.policy": "compact , delete"}, broker)
    assert (config.segment_bytes, config.index_interval_bytes, config.cleanup_policy) == (2097152, 2, ("compact", "delete"))
    assert config.compact
    assert topic_config({"internal.segment.bytes": "100"}).segment_size == 100
    old = {"message.format.version": "2.8", "flush.ms": "5"}
    assert topic_config(old, ignore_unknown=True) == topic_config({"flush.ms": "5"})
    with pytest.raises(UsageError, match=r"message\.format\.version"):
        topic_config(old)


@pytest.mark.parametrize(
    ("broker", "values"),
    [
        ({"log.retention.hours": "2"}, {"retention.ms": 7_200_000}),
        ({"log.retention.hours": "2", "log.retention.minutes": "1"}, {"retention.ms": 60_000}),
        ({"log.retention.hours": "2", "log.retention.ms": "-7"}, {"retention.ms": -1}),
        ({"log.roll.hours": "1"}, {"segment.ms": 3_600_000}),
        ({"log.flush.scheduler.interval.ms": "5", "log.flush.interval.ms": "4"}, {"flush.ms": 4}),
        ({}, {}),
    ],
)
def test_synonyms(broker: dict[str, str], values: dict[str, int]) -> None:
    assert broker_defaults(broker) == values


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"segment.bytes": "5"}, ["segment.bytes=5", "1048576 or more"]),
        ({"segment.bytes": "many"}, ["segment.bytes=many", "32-bit integer", "1048576 or more"]),
        ({"segment.byte": "5"}, ["segment.byte", "segment.bytes"]),
        ({"q": "5"}, ["unknown setting q", "segment.bytes", "retention.ms"]),
        ({"cleanup.policy": "compact,shred"}, ["cleanup.policy=compact,shred", "compact, delete"]),
        ({"preallocate": "yes"}, ["preallocate=yes", "true or false"]),
        ({"compression.gzip.level": "0"}, ["compression.gzip.level=0", "1 to 9, or -1"]),
        ({"min.cleanable.dirty.ratio": "1.5"}, ["min.cleanable.dirty.ratio=1.5", "0 to 1"]),
        ({"message.timestamp.type": "Now"}, ["Now", "CreateTime or LogAppendTime"]),
        ({"leader.replication.throttled.replicas": "1"}, ["partition:broker"]),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, ["min.compaction.lag.ms=5", "4"]),
    ],
)
def test_settings_that_are_not_allowed(overrides: dict[str, str], words: list[str]) -> None:
    with pytest.raises(UsageError) as error:
        topic_config(overrides)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    "broker", [{"log.retention.ms": "0"}, {"log.segment.bytes": "5"}, {"log.roll.hours": "0"}, {"log.preallocate": "x"}]
)
def test_a_broker_that_would_not_start(broker: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=next(iter(broker))):
        topic_config({}, broker)


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"segment.bytes": "5"}, "Invalid value 5 for configuration segment.bytes: Value must be at least 1048576"),
        ({"segment.bytes": " many"}, "Invalid value  many for configuration segment.bytes: Not a number of type INT"),
        ({"min.cleanable.dirty.ratio": "2"}, "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1"),
        ({"cleanup.policy": "a"}, "Invalid value a for configuration cleanup.policy: String must be one of: compact, delete"),
        ({"cleanup.policy": "delete,"}, "Configuration 'cleanup.policy' values must not be empty."),
        ({"no.such": "a"}, "Unknown topic config name: no.such"),
        (
            {"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"},
            "conflict topic config setting min.compaction.lag.ms (5) > max.compaction.lag.ms (4)",
        ),
    ],
)
def test_what_a_broker_answers(settings: dict[str, str], text: str) -> None:
    with pytest.raises(ApiError) as caught:
        validate_topic_config(settings)
    assert (caught.value.name, caught.value.message) == ("INVALID_CONFIG", text)


def test_remote_storage_needs_a_broker_that_has_it() -> None:
    broker = TopicConfig().values
    settings = {"remote.storage.enable": "true"}
    assert validate_topic_config(settings, broker=broker, remote_storage_enabled=True)["remote.storage.enable"] is True
    with pytest.raises(ApiError, match="Tiered Storage functionality is disabled"):
        validate_topic_config(settings, broker=broker)
    with pytest.raises(ApiError, match="It is invalid to disable remote storage"):
        validate_topic_config({}, existing=settings, broker=broker)


def test_a_topics_settings_over_a_brokers() -> None:
    broker = topic_config({}, {"log.segment.bytes": "2097152"})
    config = broker.with_overrides({"retention.ms": "5", "cleanup.policy": "compact", "of.an.older.version": "x"})
    assert (config.segment_bytes, config.retention_ms, config.cleanup_policy) == (2097152, 5, ("compact",))
    assert config.overridden == {"retention.ms", "cleanup.policy", "of.an.older.version"}
    assert broker.with_overrides({}) == broker
    assert server_synonyms("segment.ms") == ("log.roll.ms", "log.roll.hours")
    assert server_synonyms("remote.storage.enable") == ()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (-0.0, "-0.0"), (1e-3, "0.001"), (9999999.5, "9999999.5"), (1e7, "1.0E7"), (-1.25e-4, "-1.25E-4"), (1e300, "1.0E300")],
)
def test_doubles_as_text(value: float, text: str) -> None:
    assert double_text(value) == text
    assert [double_text(odd) for odd in (float("nan"), float("inf"), float("-inf"))] == ["NaN", "Infinity", "-Infinity"]


def test_arguments() -> None:
    assert parse_settings(["a=b", "c = d=e"], source="--config") == {"a": "b", "c": " d=e"}
    for argument in ("a", "=b", ""):
        with pytest.raises(UsageError, match=f"^--config {argument}: not a setting; allowed: key=value"):
            parse_settings([argument], source="--config")


def test_the_order_of_a_hash_map() -> None:
    assert put_order([20, 3000, 6], 4) == [20, 3000, 6]
    assert put_order([40, 8, 24, 1]) == [1, 40, 8, 24]
    assert put_order(range(13)) == list(range(13))
    assert put_order(["node.id", "log.retention.hours", "node.id"]) == ["node.id", "log.retention.hours"]


def test_a_definition_of_ones_own() -> None:
    definition = ConfigDef([ConfigKey("a", "int", 1), ConfigKey("b", "string", None)])
    assert definition.parse({"b": " x ", "c": "y"}, ignore_unknown=True) == {"b": "x"}
    assert definition.defaults() == {"a": 1, "b": None}
    assert definition["a"].allowed == "a 32-bit integer"
    with pytest.raises(UsageError):
        definition.parse({"c": "y"})
