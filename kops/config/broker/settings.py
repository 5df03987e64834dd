"""The settings of a node by name, and the values derived from them: roles, listeners, log directories, the quorum, defaults of topics.

Sources: Kafka's KafkaConfig and AbstractKafkaConfig. This module checks only types. `kops.config.broker.config` has all other checks.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kops.config.broker.listeners import (
    PROTOCOL_MAP,
    Endpoint,
    advertised_to_quorum,
    connection_overrides,
    effective_protocols,
    listener_name,
    number,
    parse_listeners,
    refuse,
    security_protocol,
    words,
)
from kops.config.broker_keys.quorum import HostPort, parse_bootstrap_servers, parse_voters
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, synonyms_with_factors

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.values.definition import ConfigDef, Value

# The settings that a listener can override: `listener.name.<name>.<key>`.
LISTENER_PREFIX: Final = "listener.name."


class BrokerSettings:
    """A node's settings as texts, values by name, and derived values. Raises ApiError INVALID_CONFIG with Kafka's text."""

    definition: Final[ConfigDef] = KAFKA_CONFIG_DEF

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties: dict[str, str] = dict(properties)
        self.originals = _with_synonyms(self.properties)
        self.values: dict[str, Value] = self.definition.accept(self.originals)

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @cached_property
    def node_id(self) -> int:
        """`node.id`, or `broker.id` if only that is given."""
        return number(self.values, "node.id")

    @cached_property
    def roles(self) -> frozenset[str]:
        """`broker`, `controller` or both."""
        return frozenset(words(self.values, "process.roles"))

    @cached_property
    def is_broker(self) -> bool:
        """Whether the node serves clients."""
        return "broker" in self.roles

    @cached_property
    def is_controller(self) -> bool:
        """Whether the node is a member of the metadata quorum."""
        return "controller" in self.roles

    @cached_property
    def rack(self) -> str | None:
        """`broker.rack`."""
        rack: str | None = self["broker.rack"]
        return rack

    @cached_property
    def log_dirs(self) -> tuple[str, ...]:
        """`log.dirs`, or `log.dir` if that is not set, as written."""
        return tuple(self["log.dir"] if self["log.dirs"] is None else self["log.dirs"])

    @cached_property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The log directories that get no new partitions. `*` stands for all of them."""
        cordoned = words(self.values, "cordoned.log.dirs")
        return self.log_dirs if "*" in cordoned else tuple(cordoned)

    @cached_property
    def metadata_log_dir(self) -> str:
        """The directory of the metadata log."""
        directory: str | None = self["metadata.log.dir"]
        return self.log_dirs[0] if directory is None else directory

    @cached_property
    def protocols(self) -> dict[str, str]:
        """The security protocol by listener name."""
        return effective_protocols(self.values, is_given=PROTOCOL_MAP in self.originals)

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        """All listeners of the node."""
        return parse_listeners(words(self.values, "listeners"), self.protocols)

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        """`controller.listener.names`. A broker connects to the quorum with the first of them."""
        return tuple(words(self.values, "controller.listener.names"))

    @cached_property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of the controller."""
        return tuple(endpoint for endpoint in self.listeners if endpoint.name in self.controller_listener_names)

    @cached_property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """The listeners of the broker."""
        return tuple(endpoint for endpoint in self.listeners if endpoint.name not in self.controller_listener_names)

    @cached_property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """The addresses of the broker's listeners for clients and other brokers. Host "" stands for this machine's name."""
        given = self._given_advertised
        return tuple(endpoint for endpoint in given or self.listeners if endpoint.name not in self.controller_listener_names)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """The addresses of the controller's listeners for the quorum and brokers, in the order of their names. Host "" is as above."""
        names = self.controller_listener_names
        given = [endpoint for endpoint in self._given_advertised if endpoint.name in names]

        def voter() -> HostPort | None:
            return parse_voters(words(self.values, "controller.quorum.voters")).get(self.node_id)

        return advertised_to_quorum(names, given, self.controller_listeners, voter)

    @cached_property
    def _given_advertised(self) -> tuple[Endpoint, ...]:
        if self["advertised.listeners"] is None:
            return ()
        return parse_listeners(words(self.values, "advertised.listeners"), self.protocols, distinct_ports=False)

    @property
    def inter_broker_listener_name(self) -> str:
        """The listener for connections between brokers."""
        return self._inter_broker[0]

    @property
    def inter_broker_security_protocol(self) -> str:
        """The security protocol between brokers."""
        return self._inter_broker[1]

    @cached_property
    def _inter_broker(self) -> tuple[str, str]:
        given = self["inter.broker.listener.name"]
        if given is None:
            protocol = security_protocol(self["security.inter.broker.protocol"], "security.inter.broker.protocol")
            return protocol, protocol
        if "security.inter.broker.protocol" in self.originals:
            refuse("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
        name = listener_name(given)
        if name not in self.protocols:
            refuse(f"Listener with name {name} defined in inter.broker.listener.name not found in {PROTOCOL_MAP}.")
        return name, self.protocols[name]

    @cached_property
    def quorum_voters(self) -> dict[int, HostPort]:
        """`controller.quorum.voters`: host and port by node id; empty with a dynamic quorum."""
        return parse_voters(words(self.values, "controller.quorum.voters"), routable=False)

    @cached_property
    def quorum_bootstrap_servers(self) -> list[HostPort]:
        """`controller.quorum.bootstrap.servers`: hosts and ports."""
        return parse_bootstrap_servers(words(self.values, "controller.quorum.bootstrap.servers"))

    @cached_property
    def max_connections_per_ip_overrides(self) -> dict[str, int]:
        """The maximum number of connections by host name or address."""
        return connection_overrides(self.values)

    def listener_value(self, listener: str, name: str) -> Any:
        """The value of a key for one listener: that of `listener.name.<listener>.<name>`, else that of the key itself."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return self.definition.keys[name].accept(self.properties[own]) if own in self.properties else self[name]

    def topic_defaults(self) -> dict[str, str]:
        """The given settings that are defaults of topic settings: the argument `broker` of `kops.config.topic_config`."""
        names = {synonym for name in TOPIC_CONFIG_DEF.keys for synonym, _ in synonyms_with_factors(name)}
        return {name: text for name, text in self.properties.items() if name in names}

    def topic_values(self) -> dict[str, Value]:
        """The defaults of topic settings by topic names (KafkaConfig.extractLogConfigMap)."""
        found: dict[str, Value] = {}
        for name in TOPIC_CONFIG_DEF.keys:
            for synonym, factor in synonyms_with_factors(name):
                value = self.values[synonym]
                if value is not None:
                    found[name] = value * factor if factor != 1 and isinstance(value, int) else value
                    break
        if number(found, "retention.ms") < 0:
            found["retention.ms"] = -1
        return found

    @cached_property
    def default_topic_config(self) -> TopicConfig:
        """The settings of a topic without overrides. Raises ApiError INVALID_CONFIG for a default that no topic may have."""
        return TopicConfig().with_values(self.topic_values())


def _with_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    """Copy `broker.id` to `node.id`, or the other way round, if only one of them is given."""
    found = dict(properties)
    if "node.id" in found:
        found.setdefault("broker.id", found["node.id"])
    elif "broker.id" in found:
        found["node.id"] = found["broker.id"]
    return found
