"""The settings of the producer, and the rules between them.

Source (names, types, defaults, limits, order, rules): Kafka's ProducerConfig, and KafkaProducer (configureDeliveryTimeout).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from kops.client.config.common import common, logger, no_servers, read_settings
from kops.client.config.security import SECURITY
from kops.config.values.definition import GZIP_LEVEL, NON_EMPTY, ConfigDef, ConfigKey, any_list, at_least, between, one_of
from kops.config.values.java import INT_MAX
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_MOST_IN_FLIGHT: Final = 5  # the limit for an idempotent producer: a broker remembers this many batches
_UNUSED: Final = (
    "client.dns.lookup",
    "metric.reporters",
    "metrics.recording.level",
)

PRODUCER_CONFIG_DEF: Final = ConfigDef(
    [
        ConfigKey("bootstrap.servers", "list", None, any_list(empty=False, null=False), "high", required=True),
        *common("client.dns.lookup"),
        ConfigKey("buffer.memory", "long", 33_554_432, at_least(0), "high"),
        ConfigKey("retries", "int", INT_MAX, between(0, INT_MAX), "high"),
        ConfigKey("acks", "string", "all", one_of("all", "-1", "0", "1"), "low"),
        ConfigKey("compression.type", "string", "none", one_of("none", "gzip", "snappy", "lz4", "zstd"), "high"),
        ConfigKey("compression.gzip.level", "int", -1, GZIP_LEVEL, "medium"),
        ConfigKey("compression.lz4.level", "int", 9, between(1, 17), "medium"),
        ConfigKey("compression.zstd.level", "int", 3, between(-131072, 22), "medium"),
        ConfigKey("batch.size", "int", 16_384, at_least(0), "medium"),
        ConfigKey("partitioner.adaptive.partitioning.enable", "boolean", True, None, "low"),
        ConfigKey("partitioner.availability.timeout.ms", "long", 0, at_least(0), "low"),
        ConfigKey("partitioner.ignore.keys", "boolean", False, None, "medium"),
        ConfigKey("linger.ms", "long", 5, at_least(0), "medium"),
        ConfigKey("delivery.timeout.ms", "int", 120_000, at_least(0), "medium"),
        ConfigKey("client.id", "string", "", None, "medium"),
        *common("send.buffer.bytes"),
        ConfigKey("receive.buffer.bytes", "int", 32_768, at_least(-1), "medium"),
        ConfigKey("max.request.size", "int", 1_048_576, at_least(0), "medium"),
        *common("reconnect.backoff.ms", "reconnect.backoff.max.ms", "retry.backoff.ms", "retry.backoff.max.ms"),
        ConfigKey("enable.metrics.push", "boolean", True, None, "low"),
        ConfigKey("max.block.ms", "long", 60_000, at_least(0), "medium"),
        *common("request.timeout.ms", "metadata.max.age.ms"),
        ConfigKey("metadata.max.idle.ms", "long", 300_000, at_least(5000), "low"),
        *common("metrics.sample.window.ms", "metrics.num.samples", "metrics.recording.level", "metric.reporters"),
        ConfigKey("max.in.flight.requests.per.connection", "int", 5, at_least(1), "low"),
        ConfigKey("key.serializer", "class", None, None, "high", required=True),
        ConfigKey("value.serializer", "class", None, None, "high", required=True),
        *common("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
        ConfigKey("connections.max.idle.ms", "long", 540_000, None, "medium"),
        ConfigKey("partitioner.class", "class", None, None, "medium"),
        *common("interceptor.classes", "security.protocol", "security.providers"),
        *SECURITY,
        ConfigKey("enable.idempotence", "boolean", True, None, "low"),
        ConfigKey("transaction.timeout.ms", "int", 60_000, None, "low"),
        ConfigKey("transactional.id", "string", None, NON_EMPTY, "low"),
        ConfigKey("transaction.two.phase.commit.enable", "boolean", False, None, "low"),
        *common("metadata.recovery.strategy", "metadata.recovery.rebootstrap.trigger.ms", "config.providers"),
    ]
)


def producer_settings(given: Mapping[str, object]) -> dict[str, object]:
    """Return the values of all settings for a program's settings. Raises UsageError.

    `acks` is the text of a number. `enable.idempotence` is false if other settings exclude it and the program did not request it.
    """
    if isinstance(given.get("acks"), int):  # Kafka takes a text, but Python's other clients a number, too
        given = {**given, "acks": str(given["acks"])}
    values = read_settings(PRODUCER_CONFIG_DEF, given, unused=_UNUSED)
    if not values["bootstrap.servers"]:
        raise no_servers(PRODUCER_CONFIG_DEF, given)
    if values["acks"] == "all":
        values["acks"] = "-1"
    _check_idempotence(values, given)
    _check_times(values, given)
    if values["transaction.two.phase.commit.enable"]:
        raise UsageError("transaction.two.phase.commit.enable: not supported: the producer of Kafka 4.3 has no calls for it either")
    return values


def _check_idempotence(values: dict[str, object], given: Mapping[str, object]) -> None:
    is_asked_for = "enable.idempotence" in given
    if values["enable.idempotence"]:
        for name, allowed, is_right in (("retries", "1 or more", values["retries"] != 0), ("acks", "all", values["acks"] == "-1")):
            if is_right:
                continue
            if is_asked_for:
                raise UsageError(f"{name}={values[name]}: not with enable.idempotence=true; allowed: {allowed}")
            logger.info("the producer is not idempotent, because %s=%s", name, values[name])
            values["enable.idempotence"] = False
        most = cast(int, values["max.in.flight.requests.per.connection"])
        if most > _MOST_IN_FLIGHT:
            name = "max.in.flight.requests.per.connection"
            raise UsageError(f"{name}={most}: not with an idempotent producer; allowed: 1 to {_MOST_IN_FLIGHT}")
    if values["transactional.id"] is not None and not values["enable.idempotence"]:
        raise UsageError(
            f"transactional.id={values['transactional.id']}: a transactional producer needs enable.idempotence=true and acks=all"
        )


def _check_times(values: dict[str, object], given: Mapping[str, object]) -> None:
    """Ensure that a record has at least the time to wait for its batch and for one request."""
    delivery_ms = cast(int, values["delivery.timeout.ms"])
    linger_ms = min(cast(int, values["linger.ms"]), INT_MAX)
    least_ms = min(linger_ms + cast(int, values["request.timeout.ms"]), INT_MAX)
    if delivery_ms < least_ms:
        if "delivery.timeout.ms" in given:
            raise UsageError(
                f"delivery.timeout.ms={delivery_ms}: not allowed; allowed: linger.ms + request.timeout.ms ({least_ms}) or more"
            )
        logger.warning("delivery.timeout.ms is %d instead of %d: linger.ms + request.timeout.ms", least_ms, delivery_ms)
        values["delivery.timeout.ms"] = least_ms
    for shorter, longer in (
        ("retry.backoff.ms", "retry.backoff.max.ms"),
        ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ):
        if cast(int, values[shorter]) > cast(int, values[longer]):
            logger.warning("%s=%s is more than %s=%s, so each is %s ms", shorter, values[shorter], longer, values[longer], values[longer])
