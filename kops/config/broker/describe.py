"""The description of settings for DescribeConfigs: value, source, synonyms, type, and whether a setting is hidden or read-only.

Settings come in the order of Kafka's answer, which is that of a Java hash map: some clients print them without sorting.
Source: Kafka's ConfigHelper, ConfigHelperUtils, AbstractConfig.nonInternalValues, KafkaConfig.maybeSensitive. The documentation texts that
Kafka can return for each setting are omitted.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.config.broker.dynamic_keys import DYNAMIC, config_key, synonyms
from kops.config.broker_keys.table import KAFKA_CONFIG_DEF
from kops.config.client_metrics import CLIENT_METRICS_CONFIG_DEF
from kops.config.groups import GROUP_CONFIG_DEF, broker_synonym, group_defaults
from kops.config.topic import TOPIC_CONFIG_DEF, synonyms_with_factors
from kops.config.values.definition import java_text
from kops.config.values.java_hash import put_order

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from kops.config.broker.dynamic import DynamicConfig
    from kops.config.values.definition import ConfigDef, ConfigKey, Value

# DescribeConfigsResponse.ConfigSource and ConfigType.
TOPIC_SOURCE: Final = 1
BROKER_SOURCE: Final = 2
CLUSTER_SOURCE: Final = 3
FILE_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
CLIENT_METRICS_SOURCE: Final = 7
GROUP_SOURCE: Final = 8
_TYPE_IDS: Final = {
    "boolean": 1,
    "string": 2,
    "int": 3,
    "short": 4,
    "long": 5,
    "double": 6,
    "list": 7,
    "class": 8,
    "password": 9,
}
_UNKNOWN_TYPE: Final = 0


class Synonym(NamedTuple):
    """One of the sources of a setting's value. `value` is None if it is not shown."""

    name: str
    value: str | None
    source: int


class DescribedSetting(NamedTuple):
    """A DescribeConfigsResourceResult. `value` is None if the setting has none or it is not shown. `source` and `type_id` are Kafka's
    numbers.
    """

    name: str
    value: str | None
    source: int
    is_sensitive: bool
    is_read_only: bool
    type_id: int
    synonyms: tuple[Synonym, ...]


def describe_broker(config: DynamicConfig, names: Collection[str] | None = None) -> list[DescribedSetting]:
    """Describe all settings of a node that are not internal, and all settings given to it. `names` limits the result."""
    current = config.current
    shown: dict[str, Value] = {name: current.originals[name] for name in _hidden(KAFKA_CONFIG_DEF, current.originals)}
    shown.update((name, current.values[name]) for name in _visible(KAFKA_CONFIG_DEF))
    return [_describe_broker_setting(config, name, value, True) for name, value in shown.items() if not names or name in names]


def describe_cluster(config: DynamicConfig, names: Collection[str] | None = None) -> list[DescribedSetting]:
    """Describe the settings that were set for all nodes at run time. `names` limits the result."""
    return [_describe_broker_setting(config, name, text, False) for name, text in config.cluster.items() if not names or name in names]


def describe_topic(config: DynamicConfig, settings: Mapping[str, str], names: Collection[str] | None = None) -> list[DescribedSetting]:
    """Describe all settings of a topic with the given overrides. `names` limits the result. Raises ApiError INVALID_CONFIG if one is not
    allowed.
    """
    values = config.current.default_topic_config.with_overrides(settings).values
    shown: dict[str, Value] = {name: settings[name] for name in _hidden(TOPIC_CONFIG_DEF, settings)}
    shown.update((name, values[name]) for name in _visible(TOPIC_CONFIG_DEF))
    return [_describe_topic_setting(config, name, value, settings) for name, value in shown.items() if not names or name in names]


def describe_group(config: DynamicConfig, settings: Mapping[str, str], names: Collection[str] | None = None) -> list[DescribedSetting]:
    """Describe all settings of a group with the given overrides. `names` limits the result. Raises ApiError INVALID_CONFIG if one is not
    allowed.
    """
    values = GROUP_CONFIG_DEF.accept({**group_defaults(config.current.values), **settings})
    shown = _visible(GROUP_CONFIG_DEF)
    return [_describe_group_setting(config, name, values[name], settings) for name in shown if not names or name in names]


def describe_client_metrics(settings: Mapping[str, str], names: Collection[str] | None = None) -> list[DescribedSetting]:
    """Describe all settings of a subscription with the given overrides. `names` limits the result. Raises ApiError as `describe_group`
    does.
    """
    told = []
    values = CLIENT_METRICS_CONFIG_DEF.accept(settings)
    for name in _visible(CLIENT_METRICS_CONFIG_DEF):
        if not names or name in names:
            found = (Synonym(name, _text(values[name]), CLIENT_METRICS_SOURCE),) if name in settings else ()
            told.append(_described(name, values[name], CLIENT_METRICS_CONFIG_DEF.keys[name], found, is_read_only=False))
    return told


def _describe_broker_setting(config: DynamicConfig, name: str, value: Value, per_broker: bool) -> DescribedSetting:
    key = config_key(name)
    found = _synonyms(config, name, is_sensitive=_is_sensitive(key))
    if not per_broker:
        found = tuple(synonym for synonym in found if synonym.source == CLUSTER_SOURCE)
    return _described(name, value, key, found, is_read_only=name not in DYNAMIC)


def _describe_topic_setting(config: DynamicConfig, name: str, value: Value, settings: Mapping[str, str]) -> DescribedSetting:
    key = TOPIC_CONFIG_DEF.keys.get(name)
    is_sensitive = _is_sensitive(key)
    defaults = synonyms_with_factors(name)
    found = _synonyms(config, defaults[0][0], is_sensitive=is_sensitive) if defaults else ()
    if name in settings:
        found = (Synonym(name, None if is_sensitive else _text(value), TOPIC_SOURCE), *found)
    return _described(name, value, key, found, is_read_only=False)


def _describe_group_setting(config: DynamicConfig, name: str, value: Value, settings: Mapping[str, str]) -> DescribedSetting:
    key = GROUP_CONFIG_DEF.keys[name]
    synonym = broker_synonym(name)
    if synonym is None:
        found: tuple[Synonym, ...] = (Synonym(name, _text(key.default), DEFAULT_SOURCE),)
    else:
        found = _synonyms(config, synonym, is_sensitive=False)
    if name in settings:
        found = (Synonym(name, _text(value), GROUP_SOURCE), *found)
    return _described(name, value, key, found, is_read_only=False)


def _described(name: str, value: Value, key: ConfigKey | None, found: tuple[Synonym, ...], *, is_read_only: bool) -> DescribedSetting:
    is_sensitive = _is_sensitive(key)
    source = found[0].source if found else DEFAULT_SOURCE
    type_id = _UNKNOWN_TYPE if key is None else _TYPE_IDS[key.kind]
    return DescribedSetting(name, None if is_sensitive else _text(value), source, is_sensitive, is_read_only, type_id, found)


def _synonyms(config: DynamicConfig, name: str, *, is_sensitive: bool) -> tuple[Synonym, ...]:
    """Return all sources of a setting in order. Names before the setting's own name apply to a listener only."""
    names = synonyms(name)
    layers: tuple[tuple[Mapping[str, str], int], ...] = (
        (config.broker, BROKER_SOURCE),
        (config.cluster, CLUSTER_SOURCE),
        (config.static.originals, FILE_SOURCE),
    )
    found = [
        Synonym(known, None if is_sensitive else texts[known], source) for texts, source in layers for known in names if known in texts
    ]
    for known in names:
        default = _text(KAFKA_CONFIG_DEF.keys[known].default) if known in KAFKA_CONFIG_DEF.keys else None
        if default is not None:
            found.append(Synonym(known, None if is_sensitive else default, DEFAULT_SOURCE))
    first = next((index for index, synonym in enumerate(found) if synonym.name == name), len(found))
    return tuple(found[first:])


def _hidden(definition: ConfigDef, given: Iterable[str]) -> list[str]:
    """Return the given settings that Kafka does not know or treats as internal, in the order of its maps."""
    return [name for name in put_order(given) if (key := definition.keys.get(name)) is None or key.internal]


@cache
def _visible(definition: ConfigDef) -> list[str]:
    """Return the names of all other settings in the order of Kafka's maps: of all values, from which these are copied to another map."""
    return put_order(name for name in put_order(definition.keys) if not definition.keys[name].internal)


def _is_sensitive(key: ConfigKey | None) -> bool:
    """Whether a setting is a password, or unknown and so possibly one."""
    return key is None or key.kind == "password"


def _text(value: Value) -> str | None:
    """Return the text of a value (ConfigDef.convertToString)."""
    if value is None:
        return None
    return ",".join(value) if isinstance(value, list) else java_text(value)
