"""The finalized features of the cluster, such as metadata.version, and how they change.

Source: Kafka's FeatureControlManager, QuorumFeatures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kops.errors import ApiError
from kops.metadata.controller.cluster.feature_versions import DISABLED, ELR_FEATURE, KRAFT_FEATURE, dependency_error
from kops.metadata.metadata_version import (
    FEATURE_NAME,
    LATEST_TESTING,
    MINIMUM,
    MetadataVersion,
    from_level,
    metadata_changed_between,
)
from kops.protocol.messages import FeatureLevelRecord, NoOpRecord
from kops.timeline import Timeline, TimelineDict

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from kops.metadata.broker_registration import VersionRange
    from kops.metadata.controller.base.result import Record

UPGRADE: Final = 1
SAFE_DOWNGRADE: Final = 2
UNSAFE_DOWNGRADE: Final = 3


class FeatureControl:
    """The replayed finalized levels.

    `brokers` and `controllers` return the levels that the registered nodes support. `kraft_version` returns the level of the raft layer,
    and `upgrade_kraft_version(level, validate_only)` upgrades it or raises ApiError. It is None if the voters are static.
    """

    def __init__(
        self,
        timeline: Timeline,
        node_id: int,
        supported: Mapping[str, VersionRange],
        quorum_node_ids: tuple[int, ...],
    ) -> None:
        self._node_id = node_id
        self._supported = supported
        self._quorum_node_ids = quorum_node_ids
        self._levels: TimelineDict[str, int] = TimelineDict(timeline)
        self.brokers: Callable[[], Iterable[tuple[int, Mapping[str, VersionRange]]]] = tuple
        self.controllers: Callable[[], Iterable[tuple[int, Mapping[str, VersionRange]]]] = tuple
        self.kraft_version: Callable[[], int] = int
        self.upgrade_kraft_version: Callable[[int, bool], None] | None = None

    @property
    def maybe_metadata_version(self) -> MetadataVersion | None:
        """The metadata.version, or None if the log is empty."""
        level = self._levels.get(FEATURE_NAME)
        return None if level is None else from_level(level)

    @property
    def metadata_version(self) -> MetadataVersion:
        """Return the metadata.version, which every active controller has."""
        version = self.maybe_metadata_version
        assert version is not None, "no metadata.version has been replayed"
        return version

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are tracked."""
        return self._levels.get(ELR_FEATURE, 0) >= 1

    @property
    def finalized(self) -> dict[str, int]:
        """Return all finalized levels by name, including metadata.version."""
        return dict(self._levels)

    def is_controller_id(self, node_id: int) -> bool:
        """Whether the node is one of the voters that were known at startup."""
        return node_id in self._quorum_node_ids

    def replay(self, record: FeatureLevelRecord) -> None:
        """Replay a FeatureLevelRecord. Raises ValueError if this controller does not know the level, because it must not lead then."""
        allowed = self._supported.get(record.name, DISABLED)
        if record.feature_level not in allowed:
            raise ValueError(f"{record.name} is set to {record.feature_level}, but this controller supports {allowed}")
        if record.name == KRAFT_FEATURE:
            return  # the raft layer's own records set it
        if record.feature_level == 0:
            self._levels.pop(record.name, None)
        else:
            self._levels[record.name] = record.feature_level

    def update(self, updates: Mapping[str, int], upgrade_types: Mapping[str, int], *, validate_only: bool) -> list[Record]:
        """Return the records of an UpdateFeatures request, all or none. Raises ApiError for the first feature that can't be changed."""
        records: list[Record] = []
        proposed = {**self._levels, **updates}
        for name, level in updates.items():
            records += self._update_one(name, level, upgrade_types.get(name, UPGRADE), proposed, validate_only)
        return [] if validate_only else records

    def _update_one(self, name: str, level: int, upgrade_type: int, proposed: Mapping[str, int], validate_only: bool) -> list[Record]:
        if upgrade_type not in (UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE):
            raise _invalid(name, level, "The controller does not support the given upgrade type.")
        current = self.kraft_version() if name == KRAFT_FEATURE else self._levels.get(name, 0)
        if level < 0:
            raise _invalid(name, level, "A feature version cannot be less than 0.")
        reason = self._unsupported(name, level)
        if reason is not None:
            raise _invalid(name, level, reason)
        if level < current and upgrade_type == UPGRADE:
            allowed = "upgrade type to either safe or unsafe downgrade."
            raise _invalid(name, level, f"Can't downgrade the version of this feature without setting the {allowed}")
        if level > current and upgrade_type != UPGRADE:
            raise _invalid(name, level, "Can't downgrade to a newer version.")
        if name == FEATURE_NAME:
            return self._update_metadata_version(level, unsafe=upgrade_type == UNSAFE_DOWNGRADE)
        if name == KRAFT_FEATURE:
            return self._update_kraft_version(level, current, upgrade_type, validate_only)
        error = dependency_error(name, level, proposed)
        if error is not None:
            raise _invalid(name, level, error)
        return [(FeatureLevelRecord(name, level), 0)]

    def _update_kraft_version(self, level: int, current: int, upgrade_type: int, validate_only: bool) -> list[Record]:
        if upgrade_type == UPGRADE:
            if self.upgrade_kraft_version is None:
                raise ApiError("UNSUPPORTED_VERSION", "This version of the raft layer does not support upgrading kraft.version")
            self.upgrade_kraft_version(level, validate_only)
            return [(NoOpRecord(), 0)]  # so that there is an offset for which the response can wait
        if level != current:
            raise _invalid(KRAFT_FEATURE, level, "Can't downgrade the version of this feature.")
        return []

    def _update_metadata_version(self, level: int, *, unsafe: bool) -> list[Record]:
        current, new = self.metadata_version, from_level(level)
        if new is None:
            valid = f"Valid versions are from {MINIMUM.level} to {LATEST_TESTING.level}."
            raise ApiError("INVALID_UPDATE_VERSION", f"Invalid metadata.version {level}. {valid}")
        if new < current and metadata_changed_between(new, current):
            refusal = (
                "Unsafe metadata downgrade is not supported in this version."
                if unsafe
                else "Refusing to perform the requested downgrade because it might delete metadata information."
            )
            downgrade = f"Unsupported metadata.version downgrade from {current.level} to {level}."
            raise ApiError("INVALID_UPDATE_VERSION", f"{downgrade} {refusal}")
        return [(FeatureLevelRecord(FEATURE_NAME, level), 0)]

    def _unsupported(self, name: str, level: int) -> str | None:
        """Return why a node does not support the level, or None if all nodes do."""
        reason = _reason(level, f"Local controller {self._node_id}", self._supported.get(name, DISABLED))
        if reason is not None:
            return reason
        for broker_id, features in self.brokers():
            reason = _reason(level, f"Broker {broker_id}", features.get(name, DISABLED))
            if reason is not None:
                return reason
        if not self.metadata_version.has_controller_registration:
            return None
        found = {self._node_id}
        for controller_id, features in self.controllers():
            if controller_id != self._node_id:
                reason = _reason(level, f"Controller {controller_id}", features.get(name, DISABLED))
                if reason is not None:
                    return reason
                found.add(controller_id)
        missing = next((node_id for node_id in self._quorum_node_ids if node_id not in found), None)
        return None if missing is None else f"controller {missing} has not registered, and may not support this feature"


def _reason(level: int, node: str, supported: VersionRange) -> str | None:
    if level in supported:
        return None
    return f"{node} does not support this feature." if supported.max == 0 else f"{node} only supports versions {supported}"


def _invalid(name: str, level: int, reason: str) -> ApiError:
    return ApiError("INVALID_UPDATE_VERSION", f"Invalid update version {level} for feature {name}. {reason}")
