"""Whether a running node can take a change of its settings.

Sources: the `validateReconfiguration` methods of Kafka's DynamicThreadPool, DynamicLogConfig, DynamicListenerConfig, DynamicRemoteLogConfig
and DynamicMetricsReporters. Raises ApiError INVALID_CONFIG; Kafka's client is told no more than "Invalid dynamic configuration".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.config.broker_checks import number
from kops.config.broker_dynamic_keys import LISTENER_LIMITS, LOG_DEFAULTS, PER_BROKER, TLS_STORES
from kops.config.broker_listeners import refuse
from kops.config.definition import invalid
from kops.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kops.config.broker import BrokerConfig

_THREADS: Final = ("num.io.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads")
_REMOTE_THREADS: Final = (
    "remote.log.reader.threads",
    "remote.log.manager.copier.thread.pool.size",
    "remote.log.manager.expiration.thread.pool.size",
    "remote.log.manager.follower.thread.pool.size",
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
_REPORTERS: Final = {"org.apache.kafka.common.metrics.JmxReporter"}


def check_changes(old: BrokerConfig, new: BrokerConfig, changed: frozenset[str]) -> None:
    """Whether a node with the settings `old` can go on with `new`; `changed` are the names whose texts differ."""
    if not changed:
        return
    if changed.intersection(_THREADS):
        _check_threads(old, new, _THREADS)
    if new["log.cleaner.enable"] and any(name.startswith("log.cleaner.") for name in changed):
        _check_threads(old, new, ("log.cleaner.threads",))
    if changed & (LOG_DEFAULTS | {"cordoned.log.dirs"}):
        _check_local_retention(new)
    if changed & (PER_BROKER | LISTENER_LIMITS):
        _check_listeners(old, new)
    if changed & _OF_REMOTE:
        _check_threads(old, new, _REMOTE_THREADS)
    if "metric.reporters" in changed and not _REPORTERS.issuperset(new["metric.reporters"]):
        refuse("metric.reporters: reporters are Java classes")
    try:
        new.check_served()
    except UsageError as error:
        refuse(str(error))


def _check_threads(old: BrokerConfig, new: BrokerConfig, names: Iterable[str]) -> None:
    for name in names:
        before, after = number(old.values, name), number(new.values, name)
        told = f"Dynamic thread count update validation failed for {name}={after}"
        if after < before // 2:
            refuse(f"{told}, value should be at least half the current value {before}")
        if after > before * 2:
            refuse(f"{told}, value should not be greater than double the current value {before}")


def _check_local_retention(new: BrokerConfig) -> None:
    """What is kept locally is not more than what is kept in all."""
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
    listening = {endpoint.name for endpoint in new.listeners}
    if not listening.issuperset(endpoint.name for endpoint in old.advertised_listeners):
        refuse("Advertised listeners must be a subset of listeners")
    for name in listening.intersection(endpoint.name for endpoint in old.listeners):
        if _fixed_of_listener(old, name) != _fixed_of_listener(new, name):
            refuse(
                f"Configs cannot be updated dynamically for existing listener {name}, restart broker or create a new listener for update"
            )
        if old.protocols[name] != new.protocols[name]:
            refuse(f"Security protocol cannot be updated for existing listener {name}")


def _fixed_of_listener(config: BrokerConfig, listener: str) -> dict[str, str]:
    prefix = f"listener.name.{listener.lower()}."
    own = {name.removeprefix(prefix): text for name, text in config.originals.items() if name.startswith(prefix)}
    return {name: text for name, text in own.items() if name not in LISTENER_LIMITS and name not in TLS_STORES}
