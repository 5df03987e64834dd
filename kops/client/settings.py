"""A client's settings: Kafka's keys of admin clients, producers and consumers, from a .properties file or `key=value`.

Source: Kafka's AdminClientConfig, ProducerConfig and ConsumerConfig (4.3.0: names, types, limits). If the three have different defaults,
the admin client's applies. There are three kinds of keys. Some have an effect in kops. Some are known to Kafka's clients but have no effect
in kops (`UNUSED`). Some require a feature that kops does not have (TLS, SASL, two-phase commit, Java classes), and raise an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeGuard, cast

from kops.config.values.definition import ConfigDef, ConfigKey, Kind, Validator, Value, at_least, between, one_of
from kops.config.values.java import INT_MAX
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

DEFAULT_PORT: Final = 9092
_SECONDS: Final = 1000
_MINUTES: Final = 60 * _SECONDS
_ANY_SIZE: Final = at_least(-1)
_NOT_NEGATIVE: Final = at_least(0)
_ASSIGNORS: Final = "org.apache.kafka.clients.consumer."

# Name, type, default, limit.
_ROWS: Final[tuple[tuple[str, Kind, Value, Validator | None], ...]] = (
    ("bootstrap.servers", "list", [], None),
    ("bootstrap.controllers", "list", [], None),
    ("client.id", "string", "", None),
    ("client.rack", "string", "", None),
    ("metadata.max.age.ms", "long", 5 * _MINUTES, _NOT_NEGATIVE),
    ("metadata.recovery.strategy", "string", "rebootstrap", None),
    ("metadata.recovery.rebootstrap.trigger.ms", "long", 5 * _MINUTES, _NOT_NEGATIVE),
    ("send.buffer.bytes", "int", 128 * 1024, _ANY_SIZE),
    ("receive.buffer.bytes", "int", 64 * 1024, _ANY_SIZE),
    ("reconnect.backoff.ms", "long", 50, _NOT_NEGATIVE),
    ("reconnect.backoff.max.ms", "long", 1000, _NOT_NEGATIVE),
    ("retry.backoff.ms", "long", 100, _NOT_NEGATIVE),
    ("retry.backoff.max.ms", "long", 1000, _NOT_NEGATIVE),
    ("request.timeout.ms", "int", 30 * _SECONDS, _NOT_NEGATIVE),
    ("default.api.timeout.ms", "int", _MINUTES, _NOT_NEGATIVE),
    ("socket.connection.setup.timeout.ms", "long", 10 * _SECONDS, None),
    ("socket.connection.setup.timeout.max.ms", "long", 30 * _SECONDS, None),
    ("connections.max.idle.ms", "long", 5 * _MINUTES, None),
    ("retries", "int", INT_MAX, between(0, INT_MAX)),
    ("security.protocol", "string", "PLAINTEXT", None),
    ("acks", "string", "all", one_of("all", "-1", "0", "1")),
    ("batch.size", "int", 16384, _NOT_NEGATIVE),
    ("linger.ms", "long", 5, _NOT_NEGATIVE),
    ("buffer.memory", "long", 32 * 1024 * 1024, _NOT_NEGATIVE),
    ("max.request.size", "int", 1024 * 1024, _NOT_NEGATIVE),
    ("delivery.timeout.ms", "int", 2 * _MINUTES, _NOT_NEGATIVE),
    ("enable.idempotence", "boolean", True, None),
    ("transactional.id", "string", "", None),
    ("transaction.timeout.ms", "int", _MINUTES, at_least(1)),
    ("compression.type", "string", "none", one_of("none", "gzip", "snappy", "lz4", "zstd")),
    ("compression.gzip.level", "int", -1, None),
    ("compression.lz4.level", "int", 9, between(1, 17)),
    ("compression.zstd.level", "int", 3, between(-131072, 22)),
    ("partitioner.ignore.keys", "boolean", False, None),
    ("partitioner.adaptive.partitioning.enable", "boolean", True, None),
    ("allow.auto.create.topics", "boolean", True, None),
    ("check.crcs", "boolean", True, None),
    ("fetch.min.bytes", "int", 1, _NOT_NEGATIVE),
    ("fetch.max.bytes", "int", 50 * 1024 * 1024, _NOT_NEGATIVE),
    ("fetch.max.wait.ms", "int", 500, _NOT_NEGATIVE),
    ("max.partition.fetch.bytes", "int", 1024 * 1024, _NOT_NEGATIVE),
    ("isolation.level", "string", "read_uncommitted", one_of("read_committed", "read_uncommitted")),
    ("partition.assignment.strategy", "list", [f"{_ASSIGNORS}RangeAssignor", f"{_ASSIGNORS}CooperativeStickyAssignor"], None),
    ("group.instance.id", "string", "", None),
    ("session.timeout.ms", "int", 45 * _SECONDS, _NOT_NEGATIVE),
    ("heartbeat.interval.ms", "int", 3 * _SECONDS, _NOT_NEGATIVE),
    ("max.poll.interval.ms", "int", 5 * _MINUTES, at_least(1)),
    ("enable.auto.commit", "boolean", True, None),
    ("auto.commit.interval.ms", "int", 5 * _SECONDS, _NOT_NEGATIVE),
)
_UNUSED_NAMES: Final = """
    auto.offset.reset client.dns.lookup enable.metrics.push exclude.internal.topics group.id group.protocol group.remote.assignor
    internal.throw.on.fetch.stable.offset.unsupported key.deserializer key.serializer max.block.ms max.in.flight.requests.per.connection
    max.poll.records metadata.max.idle.ms metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
    partitioner.availability.timeout.ms share.acknowledgement.mode share.acquire.mode
    value.deserializer value.serializer
"""
UNUSED: Final = tuple(_UNUSED_NAMES.split())
_SECURITY_NAMES: Final = """
    sasl.client.callback.handler.class sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter sasl.kerberos.ticket.renew.window.factor
    sasl.login.callback.handler.class sasl.login.class sasl.login.connect.timeout.ms sasl.login.read.timeout.ms
    sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds sasl.login.refresh.window.factor
    sasl.login.refresh.window.jitter sasl.login.retry.backoff.max.ms sasl.login.retry.backoff.ms sasl.mechanism
    sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud sasl.oauthbearer.assertion.claim.exp.seconds
    sasl.oauthbearer.assertion.claim.iss sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.template.file
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret sasl.oauthbearer.clock.skew.seconds
    sasl.oauthbearer.expected.audience sasl.oauthbearer.expected.issuer sasl.oauthbearer.header.urlencode
    sasl.oauthbearer.jwks.endpoint.refresh.ms sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms
    sasl.oauthbearer.jwks.endpoint.retry.backoff.ms sasl.oauthbearer.jwks.endpoint.url sasl.oauthbearer.jwt.retriever.class
    sasl.oauthbearer.jwt.validator.class sasl.oauthbearer.scope sasl.oauthbearer.scope.claim.name sasl.oauthbearer.sub.claim.name
    sasl.oauthbearer.token.endpoint.url security.providers ssl.cipher.suites ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain ssl.keystore.key
    ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location ssl.truststore.password ssl.truststore.type
"""
_SECURITY: Final = tuple(_SECURITY_NAMES.split())
_NOT_SERVED: Final = {
    **dict.fromkeys(_SECURITY, "TLS and SASL are not supported yet, only PLAINTEXT"),
    "config.providers": "config providers are Java classes",
    "interceptor.classes": "interceptors are Java classes",
    "partitioner.class": "partitioners are Java classes; keys are hashed as Kafka's default does",
    "transaction.two.phase.commit.enable": "a transaction ends with its command",
}

CLIENT_CONFIG_DEF: Final = ConfigDef(
    [
        *(ConfigKey(name, kind, default, limit) for name, kind, default, limit in _ROWS),
        *(ConfigKey(name, "string", None) for name in (*UNUSED, *_NOT_SERVED)),
    ]
)


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """The settings of a client. Times are ms, sizes bytes (-1: the system's default). Names are Kafka's with underscores."""

    bootstrap_servers: tuple[str, ...]
    bootstrap_controllers: tuple[str, ...]
    client_id: str
    client_rack: str
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    default_api_timeout_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    connections_max_idle_ms: int
    retries: int
    security_protocol: str
    acks: str
    batch_size: int
    linger_ms: int
    buffer_memory: int
    max_request_size: int
    delivery_timeout_ms: int
    enable_idempotence: bool
    transactional_id: str
    transaction_timeout_ms: int
    compression_type: str
    compression_gzip_level: int
    compression_lz4_level: int
    compression_zstd_level: int
    partitioner_ignore_keys: bool
    partitioner_adaptive_partitioning_enable: bool
    allow_auto_create_topics: bool
    check_crcs: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    isolation_level: str
    partition_assignment_strategy: tuple[str, ...]
    group_instance_id: str
    session_timeout_ms: int
    heartbeat_interval_ms: int
    max_poll_interval_ms: int
    enable_auto_commit: bool
    auto_commit_interval_ms: int
    given: Mapping[str, str] = field(default_factory=dict)  # the texts by Kafka's names, also those without effect for most commands

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> ClientSettings:
        """Return the settings for these texts, with defaults for the rest. Raises UsageError with key, value and the allowed values."""
        for name in properties:
            if name in _NOT_SERVED:
                raise UsageError(f"{name}: not supported: {_NOT_SERVED[name]}")
        given = CLIENT_CONFIG_DEF.parse(properties)
        values: dict[str, Value] = {name: given.get(name, default) for name, _, default, _ in _ROWS}
        _check(values, properties)
        plain = {name.replace(".", "_"): tuple(value) if isinstance(value, list) else value for name, value in values.items()}
        return cls(**plain, given=dict(properties))  # type: ignore[arg-type]  # the table has the fields' types

    @property
    def compression_level(self) -> int | None:
        """The level of the chosen codec, or None for the codec's default."""
        levels = {"gzip": self.compression_gzip_level, "lz4": self.compression_lz4_level, "zstd": self.compression_zstd_level}
        level = levels.get(self.compression_type)
        return None if level == -1 and self.compression_type == "gzip" else level


def unused(properties: Mapping[str, str]) -> list[str]:
    """Return the known keys that have no effect in kops."""
    return [name for name in properties if name in UNUSED]


def _check(values: dict[str, Value], properties: Mapping[str, str]) -> None:
    """Check settings against each other, and words that may be in upper or lower case."""
    protocol = str(values["security.protocol"])
    if protocol.upper() != "PLAINTEXT":
        known = ("SSL", "SASL_PLAINTEXT", "SASL_SSL")
        why = "TLS and SASL are not supported yet" if protocol.upper() in known else "no such protocol"
        raise UsageError(f"security.protocol={protocol}: {why}; allowed: PLAINTEXT")
    strategy = values["metadata.recovery.strategy"] = str(values["metadata.recovery.strategy"]).lower()
    if strategy not in ("rebootstrap", "none"):
        raise UsageError(f"metadata.recovery.strategy={strategy}: not allowed; allowed: rebootstrap or none")
    level = cast(int, values["compression.gzip.level"])
    if level != -1 and not 1 <= level <= 9:
        raise UsageError(f"compression.gzip.level={level}: not allowed; allowed: 1 to 9, or -1")
    if values["bootstrap.servers"] and values["bootstrap.controllers"]:
        raise UsageError("bootstrap.servers and bootstrap.controllers exclude each other")
    if cast(int, values["heartbeat.interval.ms"]) >= cast(int, values["session.timeout.ms"]):
        raise UsageError("heartbeat.interval.ms: not allowed; allowed: less than session.timeout.ms")
    if values["acks"] == "all":
        values["acks"] = "-1"
    if properties.get("transactional.id") == "":
        raise UsageError("transactional.id: must not be empty")
    if values["transactional.id"] and (values["acks"] != "-1" or not values["enable.idempotence"]):
        raise UsageError(
            f"transactional.id={values['transactional.id']}: a transactional producer needs acks=all and enable.idempotence=true"
        )
    if values["acks"] != "-1" and values["enable.idempotence"]:
        if "enable.idempotence" in properties:
            raise UsageError(f"acks={values['acks']}: an idempotent producer needs acks=all")
        values["enable.idempotence"] = False


def parse_address(text: str) -> tuple[str, int]:
    """Parse `host:port`, `host` (port 9092) or `[::1]:port`, with or without a leading protocol, as kcat does. Raises UsageError."""
    address = text.strip().rpartition("://")[2]
    if address.startswith("["):
        host, bracket, rest = address[1:].partition("]")
        port = rest[1:] if rest.startswith(":") else None if not rest and bracket else "?"
    elif address.count(":") > 1:
        host, port = address, None
    else:
        host, colon, rest = address.partition(":")
        port = rest if colon else None
    if not host or (port is not None and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536)):
        raise UsageError(f"{text!r} is not the address of a server; allowed: host:port, or host for port {DEFAULT_PORT}")
    return host, DEFAULT_PORT if port is None else int(port)


def parse_addresses(texts: Sequence[str]) -> list[tuple[str, int]]:
    """Return the addresses of a list without duplicates. Raises UsageError if there is none."""
    found = list(dict.fromkeys(parse_address(part) for text in texts for part in text.split(",") if part.strip()))
    if not found:
        raise UsageError("no address of a server; allowed: host:port[,host:port…]")
    return found


def read_config(config: Mapping[str, object] | None, more: Mapping[str, object]) -> dict[str, object]:
    """Return one mapping by Kafka's names, from `config` and from keyword arguments with underscores. Raises UsageError."""
    if config is not None and not isinstance(config, Mapping):
        raise UsageError(f"{config!r} are not settings; allowed: a mapping by Kafka's names, or arguments such as bootstrap_servers=…")
    settings = {**(config or {}), **{name.replace("_", "."): value for name, value in more.items()}}
    for name, value in settings.items():
        if isinstance(value, str) and not is_text(value):
            raise UsageError(f"{name}={value!r}: not a text that UTF-8 can encode")
    return settings


def is_text(given: object) -> TypeGuard[str]:
    """Whether a program's value is a text that can be sent: one without a lone surrogate, for which a message would have a question mark,
    and so another name."""
    if not isinstance(given, str):
        return False
    try:
        return given.isascii() or bool(given.encode())
    except UnicodeEncodeError:
        return False


def check_timeout(timeout: object, *, may_be_none: bool = True) -> None:
    """Raise UsageError for a program's time-out that is not a number of seconds. None, if allowed, is no time-out or that of a setting."""
    if timeout is None and may_be_none:
        return
    if not isinstance(timeout, int | float) or not timeout >= 0:
        raise UsageError(f"timeout={timeout!r}: not allowed; allowed: seconds, 0 or more")
