"""The settings that 4.3 knows. Others in a cluster's metadata come from another version and are ignored (DefaultSupportedConfigChecker)."""

from __future__ import annotations

from typing import Final

from kops.config.client_metrics import CLIENT_METRICS_CONFIG_DEF
from kops.config.groups import GROUP_CONFIG_DEF
from kops.config.topic import TOPIC_CONFIG_DEF
from kops.metadata.image.parts.configs import ResourceType

_DEFINITIONS: Final = {
    ResourceType.TOPIC: TOPIC_CONFIG_DEF,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_CONFIG_DEF,
    ResourceType.GROUP: GROUP_CONFIG_DEF,
}


def is_known(resource_type: ResourceType, name: str) -> bool:
    """Whether this type of resource has the setting. A broker may have settings of any name, for listeners and plug-ins."""
    if resource_type is ResourceType.BROKER:
        return True
    definition = _DEFINITIONS.get(resource_type)
    return definition is not None and name in definition.keys
