"""Checks whether a running node can change its settings.

Sources: the `validateReconfiguration` methods of Kafka's DynamicMetricsReporters, DynamicThreadPool, DynamicLogConfig,
DynamicListenerConfig, DynamicRemoteLogConfig and LogCleaner, in this order. An impossible change raises ApiError INVALID_CONFIG with
Kafka's text.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.config.broker.dynamic_keys import DYNAMIC, LISTENER_LIMITS, LOG_DEFAULTS, PER_BROKER, TLS_STORES
from kops.config.broker.listeners import number, refuse
from kops.config.values.definition import invalid
from kops.config.values.java_hash import put_order
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from kops.config.broker.config import BrokerConfig

_THREADS: Final = frozenset({"num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads"})
_REMOTE_THREADS: Final = frozenset(
    {
        "remote.log.reader.threads",
        "remote.log.manager.copier.thread.pool.size",
        "remote.log.manager.expiration.thread.pool.size",
        "remote.log.manager.follower.thread.pool.size",
    }
)
_OF_REMOTE: Final = frozenset(
    {
        *_REMOTE_THREADS,
        "remote.fetch.max.wait.ms",
        "remote.list.offsets.request.timeout.ms",
        "remote.log.index.file.cache.total.size.bytes",
        "remote.log.manager.copy.max.bytes.per.second",
        "remote.log.manager.fetch.max.bytes.per.second",
    }
)
_OF_CLEANER: Final = frozenset(name for name in DYNAMIC - LOG_DEFAULTS if name.startswith("log.cleaner.")) | {"message.max.bytes"}
_REPORTERS: Final = {"org.apache.kafka.common.metrics.JmxReporter"}


def check_changes(old: BrokerConfig, new: BrokerConfig, changed: frozenset[str]) -> None:
    """Check whether a node with the settings `old` can change to `new`. `changed` are the names whose texts differ."""
    if not changed:
        return
    if "metric.reporters" in changed and not _REPORTERS.issuperset(new["metric.reporters"]):
        refuse("Validation of dynamic config update of Set(metric.reporters) failed with class class kafka.server.DynamicMetricsReporters")
    if changed & _THREADS:
        _check_threads(old, new, _THREADS)
    if changed & (LOG_DEFAULTS | {"cordoned.log.dirs"}):
        _check_local_retention(new)
    if changed & (PER_BROKER | LISTENER_LIMITS):
        _check_listeners(old, new)
    if changed & _OF_REMOTE:
        _check_threads(old, new, _REMOTE_THREADS)
    if changed & _OF_CLEANER and new["log.cleaner.enable"]:
        _check_cleaner(number(old.values, "log.cleaner.threads"), number(new.values, "log.cleaner.threads"))
    try:
        new.check_served()
    except UsageError as error:
        refuse(str(error))


def _check_threads(old: BrokerConfig, new: BrokerConfig, names: Collection[str]) -> None:
    for name in put_order(new.values):
        if name not in names:
            continue
        before, after = number(old.values, name), number(new.values, name)
        told = f"Dynamic thread count update validation failed for {name}={after}"
        if after < before // 2:
            refuse(f"{told}, value should be at least half the current value {before}")
        if after > before * 2:
            refuse(f"{told}, value should not be greater than double the current value {before}")


def _check_cleaner(before: int, after: int) -> None:
    if after < before // 2:
        refuse(f"Log cleaner threads cannot be reduced to less than half the current value {before}")
    if after > before * 2:
        refuse(f"Log cleaner threads cannot be increased to more than double the current value {before}")


def _check_local_retention(new: BrokerConfig) -> None:
    """Check that the local retention is not larger than the total retention."""
    topics = new.topic_values()
    for name in ("retention.ms", "retention.bytes"):
        whole, local = number(topics, name), number(topics, f"local.{name}")
        if whole <= -1 or local == -2:
            continue
        if local == -1:
            refuse(invalid(f"log.local.{name}", local, f"Value must not be -1 as log.{name} value is set as {whole}."))
        if local > whole:
            refuse(invalid(f"log.local.{name}", local, f"Value must not be more than log.{name} property value: {whole}"))


def _check_listeners(old: BrokerConfig, new: BrokerConfig) -> None:
    advertised = dict.fromkeys(endpoint.name for endpoint in old.advertised_listeners)
    listening = dict.fromkeys(endpoint.name for endpoint in new.listeners)
    if not listening.keys() >= advertised.keys():
        refuse(f"Advertised listeners '{_names(advertised)}' must be a subset of listeners '{_names(listening)}'")
    present = {endpoint.name for endpoint in old.listeners}
    for name in listening:
        if name not in present:
            continue
        listener = f"ListenerName({name})"
        if _fixed_of_listener(old, name) != _fixed_of_listener(new, name):
            refuse(
                f"Configs cannot be updated dynamically for existing listener {listener}, restart broker or create a new listener "
                "for update"
            )
        if old.protocols[name] != new.protocols[name]:
            refuse(f"Security protocol cannot be updated for existing listener {listener}")


def _names(listeners: Iterable[str]) -> str:
    """Format listener names as a Scala set of Kafka's ListenerName."""
    return f"Set({', '.join(f'ListenerName({name})' for name in listeners)})"


def _fixed_of_listener(config: BrokerConfig, listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    own = {name.removeprefix(prefix): text for name, text in config.originals.items() if name.startswith(prefix)}
    return {name: text for name, text in own.items() if name not in LISTENER_LIMITS and name not in TLS_STORES}
