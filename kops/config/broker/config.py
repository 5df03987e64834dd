"""The settings of a node: Kafka's server.properties as a value that has passed Kafka's checks.

Sources: Kafka's KafkaConfig and AbstractKafkaConfig. `BrokerConfig.accept` is KafkaConfig's constructor, for code that answers a client.
`from_properties` is for a node that starts. It also rejects settings that Kafka supports but kops does not
(`kops.config.broker_keys.marks`).
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Final

from kops.config.broker import checks
from kops.config.broker.listeners import PROTOCOL_MAP
from kops.config.broker.settings import LISTENER_PREFIX, BrokerSettings
from kops.config.broker_keys.table import MARKS
from kops.config.values.definition import java_text
from kops.errors import ApiError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WRONG_ROLE: Final = ("create.topic.policy.class.name", "alter.config.policy.class.name")
_IGNORED_LATER: Final = ("num.partitions", "default.replication.factor")
_LISTENER_KEYS: Final = ("max.connections", "max.connection.creation.rate")


class BrokerConfig(BrokerSettings):
    """A node's settings. `config["num.partitions"]` is the typed value of any of Kafka's keys: bool, int, float, str, list of str or None.

    `properties` are the given texts. `originals` are the same texts, with `node.id` and `broker.id` filled in from each other. `values` are
    all values by name. An instance never changes. `kops.config.broker.dynamic` creates new ones.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        """Parse and check the settings as KafkaConfig's constructor does. Raises ApiError INVALID_CONFIG with Kafka's text."""
        super().__init__(properties)
        checks.check_coordinators(self.values)
        checks.check_early_start_listeners(self)
        checks.check_rebalance_protocols(self.values)
        checks.check_values(self)

    @classmethod
    def accept(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Accept all settings that Kafka accepts. Raises ApiError INVALID_CONFIG with Kafka's text."""
        return cls(properties)

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> BrokerConfig:
        """Accept the settings that a kops node can start with. Raises UsageError with the setting's name and the allowed values."""
        try:
            config = cls(properties)
            _ = config.default_topic_config  # checks the limits of topic settings
        except ApiError as error:
            raise UsageError(error.message) from error
        config.check_served()
        return config

    @cached_property
    def unused(self) -> list[tuple[str, str]]:
        """Name and reason of each given setting that has no effect, in the given order."""
        found = []
        for name in self.properties:
            mark = MARKS.get(name)
            if mark is None and not self._is_listener_key(name):
                found.append((name, "a node of Kafka 4.3 has no such setting; kops keeps it, as Kafka does for plug-ins"))
            elif mark is not None and mark.effect == "none":
                found.append((name, mark.why))
        return found

    @cached_property
    def warnings(self) -> list[str]:
        """The warnings that Kafka prints when it starts."""
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
            found.append(f"controller.listener.names: a broker uses only the first name, {self.controller_listener_names[0]}")
        found += [f"{name} is the controller's setting; a broker does not use it" for name in _WRONG_ROLE if name in self.originals]
        found += [f"{name} should also be set on the controllers" for name in _IGNORED_LATER if name in self.originals]
        return found

    def _is_listener_key(self, name: str) -> bool:
        if not name.startswith(LISTENER_PREFIX):
            return False
        listener, _, key = name.removeprefix(LISTENER_PREFIX).partition(".")
        return key in _LISTENER_KEYS and listener.upper() in self.protocols

    def check_served(self) -> None:
        """Reject settings that Kafka supports but kops does not, and addresses that no socket can have."""
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
