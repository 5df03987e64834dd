"""The dynamic settings of topics, brokers, groups and client metrics. The controller changes and checks them, and uses some itself.

Sources: Kafka's ConfigurationControlManager, ControllerConfigurationValidator, DefaultSupportedConfigChecker.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from kops.config.client_metrics import validate_client_metrics
from kops.config.groups import broker_group_settings, validate_group_config
from kops.config.topic import topic_config
from kops.config.topic_validation import validate_topic_config
from kops.config.values.java import NumberFormatError, parse_int
from kops.config.values.java_hash import put_order
from kops.config.values.topic_names import check_topic_name
from kops.errors import ApiError
from kops.metadata.controller.cluster.config_schema import BROKER, CLIENT_METRICS, GROUP, TOPIC, TYPE_NAMES, ConfigSchema, EffectiveSetting
from kops.metadata.controller.cluster.feature_versions import ELR_FEATURE
from kops.metadata.image.known_configs import is_known
from kops.metadata.image.parts.configs import ResourceType
from kops.protocol.messages import ClearElrRecord, ConfigRecord
from kops.timeline import Timeline, TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.config.values.definition import ConfigDef, Value
    from kops.metadata.controller.base.result import Record
    from kops.metadata.controller.cluster.feature_control import FeatureControl

Resource = tuple[int, str]

SET: Final = 0
DELETE: Final = 1
APPEND: Final = 2
SUBTRACT: Final = 3
_OPERATION_NAMES: Final = {APPEND: "APPEND", SUBTRACT: "SUBTRACT"}

MIN_ISR: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_CORDONED: Final = "cordoned.log.dirs"
_MAX_VALUE_LENGTH: Final = 0x7FFF
_COMMA: Final = re.compile(r"\s*,\s*")
CLUSTER: Final[Resource] = (BROKER, "")


class ConfigurationControl:
    """The replayed settings. `check_existence(resource)` raises ApiError if there is no such topic or node."""

    def __init__(
        self,
        timeline: Timeline,
        node_id: int,
        static_config: Mapping[str, str],
        features: FeatureControl,
        broker_config_def: ConfigDef | None = None,
        *,
        remote_storage_enabled: bool = False,
    ) -> None:
        self._features = features
        self._settings: TimelineDict[Resource, Mapping[str, str]] = TimelineDict(timeline)
        self._own: Resource = (BROKER, str(node_id))
        self._schema = ConfigSchema(static_config, broker_config_def)
        self._group_limits = broker_group_settings(static_config)
        self._topic_defaults: dict[str, Value] = topic_config(broker=static_config).values
        self._remote_storage_enabled = remote_storage_enabled
        self.check_existence: Callable[[Resource], None] = lambda _resource: None

    # What is set

    def settings(self, resource: Resource) -> Mapping[str, str]:
        """Return the dynamic settings of a resource."""
        return self._settings.get(resource, {})

    def topic_setting(self, topic: str, name: str) -> str:
        """Return the value of a topic's setting from any source, or "" if it has none."""
        return self._schema.effective(name, self.settings((TOPIC, topic)), self.settings(self._own), self.settings(CLUSTER)).value or ""

    def min_insync_replicas(self, topic: str) -> int:
        """Return the topic's min.insync.replicas."""
        return int(self.topic_setting(topic, MIN_ISR))

    def is_unclean_election_enabled(self, topic: str) -> bool:
        """Return the topic's unclean.leader.election.enable."""
        return self.topic_setting(topic, UNCLEAN_ELECTION).lower() == "true"

    def effective_topic_settings(self, creation_settings: Mapping[str, str]) -> list[EffectiveSetting]:
        """Return all settings of a topic that is created with these."""
        return self._schema.all_effective(creation_settings, self.settings(self._own), self.settings(CLUSTER))

    @property
    def static_min_insync_replicas(self) -> int:
        """Return the value of min.insync.replicas without any dynamic setting."""
        return int(self._schema.effective(MIN_ISR, {}).value or "")

    # Changes

    def alter(
        self, resource: Resource, operations: Mapping[str, tuple[int, str | None]], *, newly_created: bool = False, forwarded: bool = True
    ) -> list[Record]:
        """Return the records of an incremental change: (operation, value) by name, in the order of Java's map. Raises ApiError."""
        current = self.settings(resource)
        changes: dict[str, str | None] = {}
        for name in put_order(operations):
            operation, value = operations[name]
            new = self._operate(resource[0], name, operation, value, current.get(name))
            if new != current.get(name) or resource[0] == BROKER:
                changes[name] = new
        self._check(resource, changes, (), newly_created=newly_created, forwarded=forwarded)
        return self._records(resource, changes)

    def replace(self, resource: Resource, settings: Mapping[str, str | None], *, forwarded: bool = True) -> list[Record]:
        """Return the records that make these the only settings of the resource (legacy AlterConfigs). Raises ApiError."""
        current = self.settings(resource)
        changes = {name: settings[name] for name in put_order(settings) if settings[name] != current.get(name) or resource[0] == BROKER}
        dropped = [name for name in current if name not in settings]
        self._check(resource, changes, dropped, newly_created=False, forwarded=forwarded)
        return self._records(resource, {**changes, **dict.fromkeys(dropped)})

    def _operate(self, resource_type: int, name: str, operation: int, value: str | None, current: str | None) -> str | None:
        if operation == SET:
            return value
        if operation == DELETE:
            return None
        if operation not in _OPERATION_NAMES or value is None:
            raise ApiError("UNKNOWN_SERVER_ERROR")
        if not self._schema.is_list(resource_type, name):
            text = f"Can't {_OPERATION_NAMES[operation]} to key {name} because its type is not LIST."
            raise ApiError("INVALID_CONFIG", text)
        before = self._schema.default(resource_type, name) if current is None else current
        parts = [part for part in (before or "").split(",") if part]
        for part in _split(value):
            if operation == APPEND and part not in parts:
                parts.append(part)
            elif operation == SUBTRACT and part in parts:
                parts.remove(part)
        return ",".join(parts)

    def _records(self, resource: Resource, changes: Mapping[str, str | None]) -> list[Record]:
        records: list[Record] = [(ConfigRecord(resource[0], resource[1], name, value), 0) for name, value in changes.items()]
        if MIN_ISR in changes and self._features.is_elr_enabled:
            # A replica that was eligible under another min.insync.replicas may lack records that are committed under this one.
            records.append((ClearElrRecord(resource[1] if resource[0] == TOPIC else ""), 0))
        return records

    # Checks

    def _check(
        self, resource: Resource, changes: Mapping[str, str | None], dropped: Iterable[str], *, newly_created: bool, forwarded: bool
    ) -> None:
        existing = self.settings(resource)
        settings = dict(existing)
        for name, value in [*changes.items(), *dict.fromkeys(dropped).items()]:
            self._check_guarded(resource, name, value, existing.get(_CORDONED), forwarded=forwarded)
            if value is None:
                settings.pop(name, None)
            elif len(value) > _MAX_VALUE_LENGTH:
                limit = f"it exceeds the maximum value size of {_MAX_VALUE_LENGTH} bytes."
                raise ApiError("INVALID_CONFIG", f"The configuration value cannot be added because {limit}")
            else:
                settings[name] = value
        self._validate(resource, settings, existing)
        if not newly_created:
            self.check_existence(resource)

    def _check_guarded(self, resource: Resource, name: str, value: str | None, cordoned: str | None, *, forwarded: bool) -> None:
        """Reject changes that are not allowed in the cluster's current state."""
        if resource[0] != BROKER:
            return
        if name == MIN_ISR and self._features.is_elr_enabled:
            if resource[1]:
                raise ApiError("INVALID_CONFIG", f"Broker-level {MIN_ISR} cannot be altered while ELR is enabled.")
            if value is None:
                raise ApiError("INVALID_CONFIG", f"Cluster-level {MIN_ISR} cannot be removed while ELR is enabled.")
        if name == _CORDONED and not self._features.metadata_version.has_cordoned_log_dirs:
            needs = "it requires metadata.version >= 4.3-IV0"
            raise ApiError("INVALID_CONFIG", f"The {_CORDONED} configuration value cannot be set because {needs}")
        if name == _CORDONED and not forwarded and value is not None and value.strip():
            current = [] if cordoned is None else _COMMA.split(cordoned.strip())
            if not set(_COMMA.split(value.strip())).issubset(current):
                subset = "the new value must be a subset of the current configuration value."
                raise ApiError("INVALID_CONFIG", f"When updating {_CORDONED} via controllers,  {subset}")

    def _validate(self, resource: Resource, settings: Mapping[str, str], existing: Mapping[str, str]) -> None:
        resource_type, name = resource
        if resource_type == TOPIC:
            if not name:
                raise ApiError("INVALID_REQUEST", "Default topic resources are not allowed.")
            check_topic_name(name)
            defaults = self._topic_defaults
            validate_topic_config(settings, existing=existing, broker=defaults, remote_storage_enabled=self._remote_storage_enabled)
        elif resource_type == BROKER:
            _check_broker_name(name)
        elif resource_type == CLIENT_METRICS:
            validate_client_metrics(name, settings)
        elif resource_type == GROUP:
            if not name:
                raise ApiError("INVALID_REQUEST", "Default group resources are not allowed.")
            validate_group_config(settings, self._group_limits)
        else:
            raise ApiError("INVALID_REQUEST", f"Unknown resource type {TYPE_NAMES.get(resource_type, 'UNKNOWN')}")

    # Features

    def elr_safety_records(self, updates: Mapping[str, int]) -> list[Record]:
        """Return the records to write before eligible leaders are enabled: one min.insync.replicas for all brokers."""
        if updates.get(ELR_FEATURE, 0) <= 0:
            return []
        records: list[Record] = []
        if MIN_ISR not in self.settings(CLUSTER):
            records.append((ConfigRecord(BROKER, "", MIN_ISR, str(self.static_min_insync_replicas)), 0))
        own = (name for kind, name in self._settings if kind == BROKER and name and MIN_ISR in self._settings[kind, name])
        records += [(ConfigRecord(BROKER, name, MIN_ISR, None), 0) for name in own]
        return records

    # Records

    def replay(self, record: ConfigRecord) -> None:
        """Replay a ConfigRecord. Settings that 4.3 does not know are ignored."""
        resource = (record.resource_type, record.resource_name)
        if not is_known(ResourceType(record.resource_type), record.name):
            return
        settings = dict(self.settings(resource))
        if record.value is None:
            settings.pop(record.name, None)
        else:
            settings[record.name] = record.value
        if settings:
            self._settings[resource] = settings
        else:
            self._settings.pop(resource, None)

    def forget_topic(self, name: str) -> None:
        """Remove a topic's settings."""
        self._settings.pop((TOPIC, name), None)


def _check_broker_name(name: str) -> None:
    if not name:
        return
    try:
        broker_id = parse_int(name)
    except NumberFormatError:
        raise ApiError("INVALID_REQUEST", "Unable to parse broker name as a base 10 number.") from None
    if broker_id < 0:
        raise ApiError("INVALID_REQUEST", "Invalid negative broker ID.")


def _split(text: str) -> list[str]:
    """Split at commas as Java does, which drops empty texts at the end."""
    if "," not in text:
        return [text]
    parts = text.split(",")
    while parts and not parts[-1]:
        parts.pop()
    return parts
