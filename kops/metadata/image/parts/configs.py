"""Settings of topics, brokers, groups and client metrics (Kafka ConfigurationsImage, ConfigurationsDelta, ConfigResource)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple

from kops.metadata.image.parts.changes import changed_within, remove_unnamed_within
from kops.metadata.image.parts.shared_map import SharedMap

if TYPE_CHECKING:
    from kops.protocol.messages import ConfigRecord


class ResourceType(IntEnum):
    """The types of resources that have settings."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32

    @classmethod
    def _missing_(cls, value: object) -> ResourceType:
        return cls.UNKNOWN


class ConfigResource(NamedTuple):
    """A resource with settings. The BROKER without a name has the defaults of all brokers."""

    type: ResourceType
    name: str


# Whether a type of resource has this setting. Records of settings that no longer exist are ignored.
SupportedConfig = Callable[[ResourceType, str], bool]


def any_config(resource_type: ResourceType, name: str) -> bool:
    """Keep every setting (SupportedConfigChecker.TRUE)."""
    return True


@dataclass(frozen=True, slots=True)
class ConfigurationsImage:
    """The settings by resource and name. Every resource has at least one."""

    resources: SharedMap[ConfigResource, SharedMap[str, str]] = field(default_factory=SharedMap)

    def of(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the settings of one resource, without defaults."""
        found = self.resources.get(ConfigResource(resource_type, name))
        return SharedMap() if found is None else found


class ConfigurationsDelta:
    """The changes that records make to the settings."""

    def __init__(self, image: ConfigurationsImage, is_supported: SupportedConfig = any_config) -> None:
        self.image = image
        self.changes: dict[ConfigResource, dict[str, str | None]] = {}
        self._is_supported = is_supported

    def replay_config(self, record: ConfigRecord) -> None:
        """Replay a setting. One without a value is removed."""
        resource = ConfigResource(ResourceType(record.resource_type), record.resource_name)
        changes = self.changes.setdefault(resource, {})
        if self._is_supported(resource.type, record.name):
            changes[record.name] = record.value

    def replay_remove_topic(self, name: str) -> None:
        """Remove the settings of a removed topic."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        if resource in self.image.resources:
            self.changes[resource] = dict.fromkeys(self.image.resources[resource])

    def finish_snapshot(self) -> None:
        """Finish a snapshot: remove everything that it did not name."""
        remove_unnamed_within(self.image.resources, self.changes)

    def apply(self) -> ConfigurationsImage:
        """Return the image with the changes."""
        return ConfigurationsImage(changed_within(self.image.resources, self.changes))
