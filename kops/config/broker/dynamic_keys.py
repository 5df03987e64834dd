"""Which settings of a node may change at run time, and the names under which a setting is looked up.

Source: Kafka's DynamicBrokerConfig of server.config (ALL_DYNAMIC_CONFIGS, PER_BROKER_CONFIGS, brokerConfigSynonyms), DynamicConfig.Broker,
QuotaConfig.brokerQuotaConfigs, the RECONFIGURABLE_CONFIGS of SslConfigs, LogCleaner, SocketServer, DynamicThreadPool,
GroupCoordinatorConfig and ShareCoordinatorConfig.
"""

from __future__ import annotations

import re
from typing import Final

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.topic import TOPIC_CONFIG_DEF, synonyms_with_factors
from kops.config.values.definition import ConfigDef, ConfigKey, at_least
from kops.config.values.java import LONG_MAX

TLS_STORES: Final = frozenset(
    f"ssl.{name}"
    for name in (
        "key.password",
        "keystore.certificate.chain",
        "keystore.key",
        "keystore.location",
        "keystore.password",
        "keystore.type",
        "truststore.certificates",
        "truststore.location",
        "truststore.password",
        "truststore.type",
    )
)
_OF_LISTENERS: Final = frozenset(
    {
        "cordoned.log.dirs",
        "listener.security.protocol.map",
        "listeners",
        "principal.builder.class",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.kinit.cmd",
        "sasl.kerberos.min.time.before.relogin",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.kerberos.service.name",
        "sasl.kerberos.ticket.renew.jitter",
        "sasl.kerberos.ticket.renew.window.factor",
        "sasl.login.refresh.buffer.seconds",
        "sasl.login.refresh.min.period.seconds",
        "sasl.login.refresh.window.factor",
        "sasl.login.refresh.window.jitter",
        "sasl.mechanism.inter.broker.protocol",
        "ssl.cipher.suites",
        "ssl.client.auth",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.keymanager.algorithm",
        "ssl.protocol",
        "ssl.provider",
        "ssl.secure.random.implementation",
        "ssl.trustmanager.algorithm",
    }
)
# Limits that can be set for a single listener, or for all listeners of all brokers.
LISTENER_LIMITS: Final = frozenset({"max.connections", "max.connection.creation.rate", "num.network.threads"})
_OTHER: Final = frozenset(
    {
        "background.threads",
        "config.providers",
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "log.cleaner.backoff.ms",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.buffer.size",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.threads",
        "max.connections.per.ip",
        "max.connections.per.ip.overrides",
        "metric.reporters",
        "num.io.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.fetch.max.bytes.per.second",
        "remote.log.manager.follower.thread.pool.size",
        "remote.log.reader.threads",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
    }
)
QUOTA_KEYS: Final = tuple(
    ConfigKey(name, "long", LONG_MAX, at_least(0))
    for name in (
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""Limits in bytes per second. They are set only at run time and are never in a file."""
# If a topic setting's default comes from several broker settings, the first of them may change.
LOG_DEFAULTS: Final = frozenset(synonyms[0][0] for synonyms in (synonyms_with_factors(name) for name in TOPIC_CONFIG_DEF.keys) if synonyms)

PER_BROKER: Final = TLS_STORES | _OF_LISTENERS
CLUSTER_WIDE: Final = LOG_DEFAULTS | LISTENER_LIMITS | _OTHER | {key.name for key in QUOTA_KEYS}
DYNAMIC: Final = PER_BROKER | CLUSTER_WIDE
"""The settings that may change at run time: all of them for one broker, those not in PER_BROKER for the whole cluster."""
DYNAMIC_CONFIG_DEF: Final = ConfigDef((*QUOTA_KEYS, *(key for name, key in KAFKA_CONFIG_DEF.keys.items() if name in DYNAMIC)))

_SYNONYMS: Final = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_FLUSH: Final = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
_LISTENER_KEY = re.compile(r"listener\.name\.[^.]*\.(.*)")
# These names follow listener and SASL mechanism: `listener.name.<listener>.<mechanism>.<key>`.
_OF_MECHANISMS: Final = (
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
    "connections.max.reauth.ms",
)


def synonyms(name: str, *, listeners: bool = True) -> tuple[str, ...]:
    """Return the names under which a setting is looked up; the first one that is set counts. With `listeners`, the names of a listener's
    key include the key without the listener.
    """
    if name == _FLUSH[0]:
        return _FLUSH
    for names in _SYNONYMS:
        if name in names:
            return names
    base = base_name(name) if listeners else None
    if base is None:
        return (name,)
    return name, next((key for key in _OF_MECHANISMS if base.endswith(key)), base)


def config_key(name: str) -> ConfigKey | None:
    """Return the definition for the name of a node's setting, or None if Kafka does not know it (KafkaConfig.configType)."""
    for known in (name, *synonyms(name)):
        key = KAFKA_CONFIG_DEF.keys.get(known) or (DYNAMIC_CONFIG_DEF.keys.get(known) if known == name else None)
        if key is not None:
            return key
    return None


def base_name(name: str) -> str | None:
    """Return the key after the listener's name in `listener.name.<listener>.<key>`, or None for any other name."""
    found = _LISTENER_KEY.fullmatch(name)
    return None if found is None else found[1]
