"""Resolves the value of a topic's setting from the topic, the controller's own settings, those of the cluster, server.properties, and
Kafka's defaults.

Source: Kafka's KafkaConfigSchema, ConfigSynonym.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.topic import TOPIC_CONFIG_DEF, synonyms_with_factors
from kops.config.values.definition import ConfigDef, Value, java_text

if TYPE_CHECKING:
    from collections.abc import Mapping

TOPIC: Final = 2
BROKER: Final = 4
BROKER_LOGGER: Final = 8
CLIENT_METRICS: Final = 16
GROUP: Final = 32
TYPE_NAMES: Final = {TOPIC: "TOPIC", BROKER: "BROKER", BROKER_LOGGER: "BROKER_LOGGER", CLIENT_METRICS: "CLIENT_METRICS", GROUP: "GROUP"}

# DescribeConfigsResponse.ConfigSource.
FROM_TOPIC: Final = 1
FROM_BROKER: Final = 2
FROM_CLUSTER: Final = 3
FROM_FILE: Final = 4
FROM_DEFAULT: Final = 5


class EffectiveSetting(NamedTuple):
    """A setting's value as text (None if it has none) and its source."""

    name: str
    value: str | None
    source: int


class ConfigSchema:
    """The definitions of topic and broker settings, with the values of a server.properties."""

    def __init__(self, static_config: Mapping[str, str], broker_config_def: ConfigDef | None) -> None:
        self._static_config = static_config
        self._definitions = {TOPIC: TOPIC_CONFIG_DEF, BROKER: broker_config_def or KAFKA_CONFIG_DEF}

    def is_list(self, resource_type: int, name: str) -> bool:
        """Whether values can be appended to the setting."""
        definition = self._definitions.get(resource_type)
        key = None if definition is None else definition.keys.get(name)
        return key is not None and key.kind == "list"

    def default(self, resource_type: int, name: str) -> str | None:
        """Return the text of Kafka's default."""
        definition = self._definitions.get(resource_type)
        key = None if definition is None else definition.keys.get(name)
        return None if key is None else _text(key.default)

    def effective(
        self, name: str, topic: Mapping[str, str], broker: Mapping[str, str] | None = None, cluster: Mapping[str, str] | None = None
    ) -> EffectiveSetting:
        """Return a setting of a topic with these dynamic settings of the topic, of the controller's node and of the cluster."""
        if name in topic:
            return EffectiveSetting(name, topic[name], FROM_TOPIC)
        layers = ((broker or {}, FROM_BROKER), (cluster or {}, FROM_CLUSTER), (self._static_config, FROM_FILE))
        for settings, source in layers:
            for synonym, factor in synonyms_with_factors(name):
                if synonym in settings:
                    return EffectiveSetting(name, _converted(settings[synonym], factor), source)
        return EffectiveSetting(name, _text(TOPIC_CONFIG_DEF.keys[name].default), FROM_DEFAULT)

    def all_effective(self, topic: Mapping[str, str], broker: Mapping[str, str], cluster: Mapping[str, str]) -> list[EffectiveSetting]:
        """Return all settings of a topic by name. Internal ones are included only if the topic sets them."""
        shown = (name for name, key in TOPIC_CONFIG_DEF.keys.items() if not key.internal or name in topic)
        return [self.effective(name, topic, broker, cluster) for name in sorted(shown)]


def _converted(text: str, factor: int) -> str:
    if factor == 1:
        return text
    number = text.strip()
    return str(int(number) * factor) if number.removeprefix("-").isdecimal() else "0"


def _text(value: Value) -> str | None:
    """ConfigDef.convertToString."""
    if value is None:
        return None
    return ",".join(value) if isinstance(value, list) else java_text(value)
