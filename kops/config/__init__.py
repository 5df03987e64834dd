"""Kafka's settings: definitions, the settings of nodes and topics, and Java's .properties.

config = topic_config({"segment.bytes": "1048576"}, broker=read_properties(data))
config.segment_size
"""

from __future__ import annotations

from kops.late import late

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.config.broker.config import BrokerConfig
    from kops.config.broker.listeners import Endpoint
    from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, broker_defaults, parse_settings, topic_config
    from kops.config.values.definition import ConfigDef, ConfigKey
    from kops.config.values.properties import read_properties, write_properties

__all__ = [
    "TOPIC_CONFIG_DEF",
    "BrokerConfig",
    "ConfigDef",
    "ConfigKey",
    "Endpoint",
    "TopicConfig",
    "broker_defaults",
    "parse_settings",
    "read_properties",
    "topic_config",
    "write_properties",
]

_DEFINITION, _PROPERTIES, _TOPIC = "kops.config.values.definition", "kops.config.values.properties", "kops.config.topic"
_LATER = {
    "TOPIC_CONFIG_DEF": _TOPIC,
    "BrokerConfig": "kops.config.broker.config",
    "ConfigDef": _DEFINITION,
    "ConfigKey": _DEFINITION,
    "Endpoint": "kops.config.broker.listeners",
    "TopicConfig": _TOPIC,
    "broker_defaults": _TOPIC,
    "parse_settings": _TOPIC,
    "read_properties": _PROPERTIES,
    "topic_config": _TOPIC,
    "write_properties": _PROPERTIES,
}


# `kops.storage` often needs the numbers of `kops.config.values.java`, but rarely the definitions.
__getattr__ = late(globals(), _LATER)
