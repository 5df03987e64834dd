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
    """What has settings."""

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
    """One that has settings. The defaults of all brokers are those of the BROKER without a name."""

    type: ResourceType
    name: str


# Whether a type of resource has this setting: records of settings that no longer exist are ignored.
SupportedConfig = Callable[[ResourceType, str], bool]


def any_config(resource_type: ResourceType, name: str) -> bool:
    """Every setting is kept (SupportedConfigChecker.TRUE)."""
    return True


@dataclass(frozen=True, slots=True)
class ConfigurationsImage:
    """The settings that were made, by resource and name; nobody without any."""

    resources: SharedMap[ConfigResource, SharedMap[str, str]] = field(default_factory=SharedMap)

    def of(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """The settings made for one, without any defaults."""
        found = self.resources.get(ConfigResource(resource_type, name))
        return SharedMap() if found is None else found


class ConfigurationsDelta:
    """What records change in the settings."""

    def __init__(self, image: ConfigurationsImage, is_supported: SupportedConfig = any_config) -> None:
        self.image = image
        self.changes: dict[ConfigResource, dict[str, str | None]] = {}
        self._is_supported = is_supported

    def replay_config(self, record: ConfigRecord) -> None:
        """A setting made or, without a value, taken back."""
        resource = ConfigResource(ResourceType(record.resource_type), record.resource_name)
        changes = self.changes.setdefault(resource, {})
        if self._is_supported(resource.type, record.name):
            changes[record.name] = record.value

    def replay_remove_topic(self, name: str) -> None:
        """A topic's settings go with it."""
        resource = ConfigResource(ResourceType.TOPIC, name)
        if resource in self.image.resources:
            self.changes[resource] = dict.fromkeys(self.image.resources[resource])

    def finish_snapshot(self) -> None:
        """All records of a snapshot were replayed."""
        remove_unnamed_within(self.image.resources, self.changes)

    def apply(self) -> ConfigurationsImage:
        """The image with the changes."""
        return ConfigurationsImage(changed_within(self.image.resources, self.changes))
