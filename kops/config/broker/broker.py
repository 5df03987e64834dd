"""The settings of a node: Kafka's server.properties as a value that has passed Kafka's checks.

Sources: Kafka's KafkaConfig and AbstractKafkaConfig. `BrokerConfig.accept` is KafkaConfig's constructor, for whoever answers a client;
`from_properties` is for a node that starts, and refuses also what Kafka serves and kops does not (`broker_marks`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from kops.config.broker import checks
from kops.config.broker.listeners import (
    PROTOCOL_MAP,
    Endpoint,
    advertised_to_quorum,
    effective_protocols,
    listener_name,
    parse_listeners,
    refuse,
    security_protocol,
    words,
)
from kops.config.broker_keys.quorum import HostPort, parse_bootstrap_servers, parse_voters
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF, MARKS
from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, synonyms_with_factors
from kops.config.values.definition import java_text
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.config.values.definition import ConfigDef, Value

_WRONG_ROLE: Final = ("create.topic.policy.class.name", "alter.config.policy.class.name")
_IGNORED_LATER: Final = ("num.partitions", "default.replication.factor")
# What may be set for one listener: `listener.name.<name>.<key>`.
LISTENER_PREFIX: Final = "listener.name."
_LISTENER_KEYS: Final = ("max.connections", "max.connection.creation.rate")


class BrokerConfig:
    """A node's settings. `config["num.partitions"]` is the typed value of any of Kafka's keys: bool, int, float, str, list of str, None.

    `properties` are the texts as given, `originals` these with `node.id` and `broker.id` filled in from each other, `values` all values by
    name. An instance does not change: `kops.config.broker.dynamic` makes others.
    """

    definition: Final[ConfigDef] = KAFKA_CONFIG_DEF

    def __init__(self, properties: Mapping[str, str]) -> None:
        """KafkaConfig's constructor. Raises ApiError INVALID_CONFIG with Kafka's text."""
        self.properties: dict[str, str] = dict(properties)
        self.originals = _with_synonyms(self.properties)
        self.values: dict[str, Value] = self.definition.accept(self.originals)
        checks.check_coordinators(self.values)
        checks.check_early_start_listeners(self)
        checks.check_rebalance_protocols(self.values)
        checks.check_values(self)

    @classmethod
    def accept(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """The settings that Kafka takes. Raises ApiError INVALID_CONFIG with Kafka's text."""
        return cls(properties)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """The settings that a kops node can start with. Raises UsageError that names the setting and what is allowed."""
        try:
            config = cls(properties)
            _ = config.default_topic_config  # its limits are those of topics
        except ApiError as error:
            raise UsageError(error.message) from error
        config.check_served()
        return config

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    @cached_property
    def node_id(self) -> int:
        """`node.id`, or `broker.id` where only that is given."""
        return checks.number(self.values, "node.id")

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
        """`log.dirs`, or `log.dir` where that is not set; as written."""
        return tuple(self["log.dir"] if self["log.dirs"] is None else self["log.dirs"])

    @cached_property
    def cordoned_log_dirs(self) -> tuple[str, ...]:
        """The log directories that get no new partitions; `*` is all of them."""
        cordoned = words(self.values, "cordoned.log.dirs")
        return self.log_dirs if "*" in cordoned else tuple(cordoned)

    @cached_property
    def metadata_log_dir(self) -> str:
        """Where the log of the cluster's metadata is."""
        directory: str | None = self["metadata.log.dir"]
        return self.log_dirs[0] if directory is None else directory

    @cached_property
    def protocols(self) -> dict[str, str]:
        """The security protocol by listener name."""
        return effective_protocols(self.values, is_given=PROTOCOL_MAP in self.originals)

    @cached_property
    def listeners(self) -> tuple[Endpoint, ...]:
        """All that the node listens on."""
        return parse_listeners(words(self.values, "listeners"), self.protocols)

    @cached_property
    def controller_listener_names(self) -> tuple[str, ...]:
        """`controller.listener.names`; a broker reaches the quorum by the first."""
        return tuple(words(self.values, "controller.listener.names"))

    @cached_property
    def controller_listeners(self) -> tuple[Endpoint, ...]:
        """Those of `listeners` that are the controller's."""
        return tuple(endpoint for endpoint in self.listeners if endpoint.name in self.controller_listener_names)

    @cached_property
    def broker_listeners(self) -> tuple[Endpoint, ...]:
        """Those of `listeners` that are the broker's."""
        return tuple(endpoint for endpoint in self.listeners if endpoint.name not in self.controller_listener_names)

    @cached_property
    def advertised_listeners(self) -> tuple[Endpoint, ...]:
        """What clients and other brokers are told of the broker's listeners; host "": this machine's own name."""
        given = self._given_advertised
        return tuple(endpoint for endpoint in given or self.listeners if endpoint.name not in self.controller_listener_names)

    @cached_property
    def advertised_controller_listeners(self) -> tuple[Endpoint, ...]:
        """What the quorum and brokers are told of the controller's listeners, by the order of their names; host "" as above."""
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
        """The listener by which brokers talk to each other."""
        return self._inter_broker[0]

    @property
    def inter_broker_security_protocol(self) -> str:
        """The security protocol that brokers speak with each other."""
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
        """The most connections by host name or address."""
        return checks.connection_overrides(self.values)

    def listener_value(self, listener: str, name: str) -> Any:
        """The value of a key for one listener: `listener.name.<listener>.<name>`, else that of the key."""
        own = f"{LISTENER_PREFIX}{listener.lower()}.{name}"
        return self.definition.keys[name].accept(self.properties[own]) if own in self.properties else self[name]

    def topic_defaults(self) -> dict[str, str]:
        """The settings, as given, that are defaults of topics' settings: what `kops.config.topic_config` takes as `broker`."""
        names = {synonym for name in TOPIC_CONFIG_DEF.keys for synonym, _ in synonyms_with_factors(name)}
        return {name: text for name, text in self.properties.items() if name in names}

    def topic_values(self) -> dict[str, Value]:
        """The defaults of topics' settings by topic names (KafkaConfig.extractLogConfigMap)."""
        found: dict[str, Value] = {}
        for name in TOPIC_CONFIG_DEF.keys:
            for synonym, factor in synonyms_with_factors(name):
                value = self.values[synonym]
                if value is not None:
                    found[name] = value * factor if factor != 1 and isinstance(value, int) else value
                    break
        if checks.number(found, "retention.ms") < 0:
            found["retention.ms"] = -1
        return found

    @cached_property
    def default_topic_config(self) -> TopicConfig:
        """The settings of a topic that has none of its own. Raises ApiError INVALID_CONFIG for a default that no topic may have."""
        return TopicConfig().with_values(self.topic_values())

    @cached_property
    def unused(self) -> list[tuple[str, str]]:
        """What is given and has no effect, in the order given: name and why."""
        found = []
        for name in self.properties:
            mark = MARKS.get(name)
            if mark is None and not self._is_listener_key(name):
                found.append((name, "a Kafka 4.3 node has no such setting; it is kept, as Kafka keeps it for plug-ins"))
            elif mark is not None and mark.effect == "none":
                found.append((name, mark.why))
        return found

    @cached_property
    def warnings(self) -> list[str]:
        """What Kafka warns about at a start."""
        found = []
        heartbeat, timeout = self["broker.heartbeat.interval.ms"], self["broker.session.timeout.ms"]
        if heartbeat * 2 > timeout:
            found.append(
                f"broker.heartbeat.interval.ms ({heartbeat} ms) is more than half of broker.session.timeout.ms ({timeout} ms): a broker "
                "that misses one heartbeat is fenced"
            )
        if self.is_controller:
            return found
        if len(self.controller_listener_names) > 1:
            found.append(f"controller.listener.names: of several only the first, {self.controller_listener_names[0]}, is used by a broker")
        found += [f"{name} is the controller's setting; a broker does not use it" for name in _WRONG_ROLE if name in self.originals]
        found += [f"{name} belongs in the controller's settings, too" for name in _IGNORED_LATER if name in self.originals]
        return found

    def _is_listener_key(self, name: str) -> bool:
        if not name.startswith(LISTENER_PREFIX):
            return False
        listener, _, key = name.removeprefix(LISTENER_PREFIX).partition(".")
        return key in _LISTENER_KEYS and listener.upper() in self.protocols

    def check_served(self) -> None:
        """Refuse what Kafka serves and kops does not, and addresses that no socket can have."""
        for name, mark in MARKS.items():
            value, default = self.values[name], self.definition.keys[name].default
            if mark.effect == "refused" and value != default and value not in _HARMLESS.get(name, ()):
                raise UsageError(f"{name}={java_text(value)}: {mark.why}; allowed: {java_text(default) or 'nothing'}")
        for endpoint in (*self.listeners, *self._given_advertised):
            if not 0 <= endpoint.port <= 0xFFFF:
                raise UsageError(f"listeners: port {endpoint.port} of {endpoint.name} is not a port; allowed: 0 to 65535")
        names = {*(endpoint.name for endpoint in self.listeners), *self.controller_listener_names, self.inter_broker_listener_name}
        for name in sorted(names):
            protocol = self.protocols.get(name, "PLAINTEXT")
            if protocol != "PLAINTEXT":
                raise UsageError(f"listener {name}: {protocol} is not served; allowed in {PROTOCOL_MAP}: PLAINTEXT")


_HARMLESS: Final[dict[str, tuple[object, ...]]] = {
    "replica.selector.class": (
        "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "org.apache.kafka.common.replica.LeaderSelector",
    ),
}


def _with_synonyms(properties: Mapping[str, str]) -> dict[str, str]:
    """`broker.id` and `node.id` are the same number: each is what the other one is where only one is given."""
    found = dict(properties)
    if "node.id" in found:
        found.setdefault("broker.id", found["node.id"])
    elif "broker.id" in found:
        found["node.id"] = found["broker.id"]
    return found
