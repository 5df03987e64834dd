"""Checks of a node's settings against each other, with Kafka's texts.

Sources: Kafka's KafkaConfig.validateValues and the constructors of GroupCoordinatorConfig, ShareGroupConfig and ShareCoordinatorConfig. The
checks run in the order of KafkaConfig and report the first error. They raise ApiError INVALID_CONFIG.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.config.broker.listeners import connection_overrides, listener_name, number, refuse, words
from kops.config.values.java_hash import put_order

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.broker.settings import BrokerSettings
    from kops.config.values.definition import Value

_MIB: Final = 1 << 20
_HOST = re.compile(r"[0-9a-zA-Z\-%._:]*")
_CODECS: Final = range(5)
_AT_LEAST: Final = "{} must be greater than or equal to {}"
_AT_MOST: Final = "{} must be less than or equal to {}"


def require(holds: bool, text: str) -> None:
    """Raise the error of Scala's `require` if the condition is false."""
    if not holds:
        refuse(f"requirement failed: {text}")


def check_coordinators(values: Mapping[str, Value]) -> None:
    """Check the settings of the group coordinator, then those of share groups and their coordinator."""
    for name in words(values, "group.consumer.assignors"):
        if name not in ("uniform", "range"):
            refuse(f"Class {name} cannot be found")
    _check_codec(number(values, "offsets.topic.compression.codec"))
    share_assignors = words(values, "group.share.assignors")
    for name in share_assignors:
        if name != "simple":
            refuse(f"Class {name} cannot be found")
    for kind in ("consumer", "share", "streams"):
        _check_between(values, f"group.{kind}", "heartbeat.interval.ms")
        _check_between(values, f"group.{kind}", "session.timeout.ms")
        heartbeat, session = f"group.{kind}.heartbeat.interval.ms", f"group.{kind}.session.timeout.ms"
        if number(values, heartbeat) >= number(values, session):
            refuse(f"{heartbeat} must be less than {session}")
        if kind == "share" and len(share_assignors) != 1:
            refuse(f"group.share.assignors must contain exactly one assignor, but found {len(share_assignors)}")
        _check_between(values, f"group.{kind}", "assignment.interval.ms")
    _ordered(values, "group.streams.num.standby.replicas", "group.streams.max.standby.replicas", _AT_MOST)
    for larger, smaller in _SHARE_ORDER:
        _ordered(values, smaller, larger, _AT_LEAST)
    _check_codec(number(values, "share.coordinator.state.topic.compression.codec"))


_SHARE_ORDER: Final = (
    ("group.share.max.delivery.count.limit", "group.share.delivery.count.limit"),
    ("group.share.delivery.count.limit", "group.share.min.delivery.count.limit"),
    ("group.share.max.partition.max.record.locks", "group.share.partition.max.record.locks"),
    ("group.share.partition.max.record.locks", "group.share.min.partition.max.record.locks"),
    ("group.share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms"),
    ("group.share.max.record.lock.duration.ms", "group.share.record.lock.duration.ms"),
    ("group.share.max.share.sessions", "group.share.max.size"),
)


def _check_between(values: Mapping[str, Value], prefix: str, name: str) -> None:
    low, own, high = f"{prefix}.min.{name}", f"{prefix}.{name}", f"{prefix}.max.{name}"
    _ordered(values, low, high, _AT_LEAST)
    _ordered(values, low, own, _AT_LEAST)
    _ordered(values, own, high, _AT_MOST)


def _ordered(values: Mapping[str, Value], smaller: str, larger: str, text: str) -> None:
    if number(values, smaller) > number(values, larger):
        refuse(text.format(larger, smaller) if text is _AT_LEAST else text.format(smaller, larger))


def _check_codec(codec: int) -> None:
    if codec not in _CODECS:
        refuse(f"Unknown compression type id: {codec}")


def check_early_start_listeners(config: BrokerSettings) -> None:
    """Check that `early.start.listeners` are among the listeners."""
    listening = {endpoint.name for endpoint in config.listeners}
    for name in config["early.start.listeners"] or ():
        if name not in listening:
            refuse(f"early.start.listeners contains listener {name}, but this is not contained in listeners or controller.listener.names")


def check_rebalance_protocols(values: Mapping[str, Value]) -> None:
    """Check that the classic protocol is enabled, because it can't be disabled."""
    if "classic" not in words(values, "group.coordinator.rebalance.protocols"):
        refuse("Disabling the 'classic' protocol is not supported.")


def check_values(config: BrokerSettings) -> None:
    """Run the checks of KafkaConfig.validateValues."""
    values = config.values
    if config.node_id != number(values, "broker.id"):
        refuse("You must set `node.id` to the same value as `broker.id`.")
    _check_log(config)
    wait = number(values, "replica.fetch.wait.max.ms")
    require(
        wait <= number(values, "replica.socket.timeout.ms"),
        "replica.socket.timeout.ms should always be at least replica.fetch.wait.max.ms to prevent unnecessary socket timeouts",
    )
    require(
        wait <= number(values, "replica.lag.time.max.ms"),
        "replica.fetch.wait.max.ms should always be less than or equal to replica.lag.time.max.ms to prevent frequent changes in ISR",
    )
    _ = config.advertised_listeners  # reports their errors before all others
    _check_roles(config)
    if config.is_broker:
        _check_broker(config)
    for endpoint in (*config.advertised_listeners, *config.advertised_controller_listeners):
        require(
            endpoint.host != "0.0.0.0",
            "advertised.listeners cannot use the nonroutable meta-address 0.0.0.0. Use a routable IP address.",
        )
    _check_sasl(config)
    _check_connections(values)


def _check_log(config: BrokerSettings) -> None:
    values, topics = config.values, config.topic_values()
    require(number(topics, "segment.ms") >= 1, "log.roll.ms must be greater than or equal to 1")
    require(number(topics, "segment.jitter.ms") >= 0, "log.roll.jitter.ms must be greater than or equal to 0")
    retention = number(topics, "retention.ms")
    require(retention >= 1 or retention == -1, "log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
    require(bool(config.log_dirs), "At least one log directory must be defined via log.dirs or log.dir.")
    threads = number(values, "log.cleaner.threads")
    if threads == 0:
        refuse("log.cleaner.threads must be greater than or equal to 1")
    require(
        number(values, "log.cleaner.dedupe.buffer.size") // threads > _MIB,
        "log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.",
    )


def _check_roles(config: BrokerSettings) -> None:
    names = config.controller_listener_names
    if not config.quorum_voters and not config.quorum_bootstrap_servers:
        refuse(
            "If using process.roles, either controller.quorum.bootstrap.servers must contain the set of bootstrap controllers or "
            "controller.quorum.voters must contain a parseable set of controllers."
        )
    voters = f"the set of voters controller.quorum.voters={_scala_set(config.quorum_voters)}"
    if not config.is_controller:
        _check_broker_only(config, voters)
        return
    if not config.is_broker:
        require(
            len(config.advertised_controller_listeners) == len(config.listeners),
            "The listeners config must only contain KRaft controller listeners from controller.listener.names when "
            "process.roles=controller",
        )
        if config["inter.broker.listener.name"] is not None:
            require(
                config.inter_broker_listener_name not in names,
                "controller.listener.names must not contain an explicitly set inter.broker.listener.name configuration value when "
                "process.roles=controller'",
            )
    require(
        not config.quorum_voters or config.node_id in config.quorum_voters,
        f"If process.roles contains the 'controller' role, the node id {config.node_id} must be included in {voters}",
    )
    require(
        bool(config.advertised_controller_listeners),
        "controller.listener.names must contain at least one value appearing in the 'listeners' configuration when running the KRaft "
        "controller role",
    )
    require(
        {endpoint.name for endpoint in config.listeners}.issuperset(names),
        "controller.listener.names must only contain values appearing in the 'listeners' configuration when running the KRaft "
        "controller role",
    )


def _check_broker_only(config: BrokerSettings, voters: str) -> None:
    require(
        config.node_id not in config.quorum_voters,
        f"If process.roles contains just the 'broker' role, the node id {config.node_id} must not be included in {voters}",
    )
    require(
        not config.controller_listeners,
        "controller.listener.names must not contain a value appearing in the 'listeners' configuration when running KRaft with just the "
        "broker role",
    )
    for name in map(listener_name, config.controller_listener_names):
        if name not in config.protocols:
            refuse(
                f"Controller listener with name {name} defined in controller.listener.names not found in listener.security.protocol.map"
                "  (an explicit security mapping for each controller listener is required if listener.security.protocol.map is "
                "non-empty, or if there are security protocols other than PLAINTEXT in use)"
            )
    require(
        not config["controller.quorum.auto.join.enable"],
        "controller.quorum.auto.join.enable is only supported when process.roles contains the 'controller' role.",
    )


def _check_broker(config: BrokerSettings) -> None:
    advertised = list(dict.fromkeys(endpoint.name for endpoint in config.advertised_listeners))
    listening = list(dict.fromkeys(endpoint.name for endpoint in config.listeners))
    require(
        bool(advertised),
        "There must be at least one broker advertised listener. Perhaps all listeners appear in controller.listener.names?",
    )
    require(
        config.inter_broker_listener_name in advertised,
        "inter.broker.listener.name must be a listener name defined in advertised.listeners. "
        f"The valid options based on currently configured listeners are {','.join(advertised)}",
    )
    require(
        set(advertised) <= set(listening),
        "advertised.listeners listener names must be equal to or a subset of the ones defined in listeners. "
        f"Found {','.join(advertised)}. The valid options based on the current configuration are {','.join(listening)}",
    )
    cordoned = words(config.values, "cordoned.log.dirs")
    if "*" in cordoned:
        require(len(cordoned) == 1, "When cordoned.log.dirs is set to *, it must not contain other values")
        return
    unknown = [directory for directory in cordoned if directory not in config.log_dirs]
    require(
        not unknown,
        f"All entries in cordoned.log.dirs must be present in log.dirs or log.dir. Missing entries : {', '.join(unknown)}",
    )


def _check_sasl(config: BrokerSettings) -> None:
    if not config.inter_broker_security_protocol.startswith("SASL"):
        return
    own = f"listener.name.{config.inter_broker_listener_name.lower()}.sasl.enabled.mechanisms"
    enabled = config.definition.keys["sasl.enabled.mechanisms"]
    mechanisms = enabled.accept(config.properties[own]) if own in config.properties else config[enabled.name]
    require(
        isinstance(mechanisms, list) and config["sasl.mechanism.inter.broker.protocol"] in mechanisms,
        "sasl.mechanism.inter.broker.protocol must be included in sasl.enabled.mechanisms when SASL is used for inter-broker communication",
    )


def _check_connections(values: Mapping[str, Value]) -> None:
    queued = number(values, "queued.max.request.bytes")
    require(
        queued <= 0 or queued >= number(values, "socket.request.max.bytes"),
        "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
    )
    overrides = connection_overrides(values)
    require(
        bool(overrides) or number(values, "max.connections.per.ip") != 0,
        "max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.",
    )
    wrong = [address for address in overrides if not _HOST.fullmatch(address)]
    if wrong:
        refuse(f"max.connections.per.ip.overrides contains invalid addresses : {','.join(wrong)}")
    idle, delay = number(values, "connections.max.idle.ms"), number(values, "connection.failed.authentication.delay.ms")
    require(
        idle < 0 or delay < idle,
        f"connection.failed.authentication.delay.ms={delay} should always be less than connections.max.idle.ms={idle} to prevent failed "
        "authentication responses from timing out",
    )


def _scala_set(items: Mapping[int, object]) -> str:
    bins = 1 << (len(items) - 1).bit_length() if items else 1
    return f"Set({', '.join(map(str, put_order(items, bins)))})"
