"""The features that a 4.3 cluster can finalize: their levels, the dependencies of each level, and the metadata.version from which it is the
default.

Sources: Kafka's Feature, TransactionVersion, GroupVersion, ShareVersion, StreamsVersion, EligibleLeaderReplicasVersion, KRaftVersion,
BootstrapMetadata.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kops.metadata.broker_registration import VersionRange
from kops.metadata.metadata_version import FEATURE_NAME, LATEST_PRODUCTION, MINIMUM
from kops.protocol.messages import FeatureLevelRecord

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kops.metadata.controller.base.result import Record
    from kops.metadata.metadata_version import MetadataVersion

ELR_FEATURE: Final = "eligible.leader.replicas.version"
KRAFT_FEATURE: Final = "kraft.version"
DISABLED: Final = VersionRange(0, 0)


class FeatureLevel(NamedTuple):
    """A level of a feature: the metadata.version from which new clusters have it, and the levels of other features that it needs."""

    bootstrap_metadata_level: int
    dependencies: tuple[tuple[str, int], ...] = ()


# Level 0 is the first level of every feature and needs no other one.
_OFF: Final = FeatureLevel(MINIMUM.level)
FEATURES: Final[dict[str, tuple[FeatureLevel, ...]]] = {
    KRAFT_FEATURE: (_OFF, FeatureLevel(21)),
    "transaction.version": (_OFF, FeatureLevel(24), FeatureLevel(24)),
    "group.version": (_OFF, FeatureLevel(22)),
    ELR_FEATURE: (_OFF, FeatureLevel(26, ((FEATURE_NAME, 23),))),
    "share.version": (_OFF, FeatureLevel(28)),
    "streams.version": (_OFF, FeatureLevel(29)),
}


def production_features() -> dict[str, VersionRange]:
    """Return the features that a node of 4.3 supports (QuorumFeatures.defaultSupportedFeatureMap)."""
    others = {name: VersionRange(0, len(levels) - 1) for name, levels in FEATURES.items()}
    return {FEATURE_NAME: VersionRange(MINIMUM.level, LATEST_PRODUCTION.level), **others}


def default_level(name: str, version: MetadataVersion) -> int:
    """Return the level with which a new cluster of this metadata.version starts."""
    return sum(one.bootstrap_metadata_level <= version.level for one in FEATURES[name][1:])


def bootstrap_records(version: MetadataVersion, levels: Mapping[str, int] | None = None) -> tuple[Record, ...]:
    """Return the records of a bootstrap.checkpoint (BootstrapMetadata.fromVersions). `levels` are the levels by feature; the others have
    their defaults."""
    given = {name: default_level(name, version) for name in FEATURES} if levels is None else levels
    names = sorted(name for name, level in given.items() if level > 0 and name not in (FEATURE_NAME, KRAFT_FEATURE))
    records: list[Record] = [(FeatureLevelRecord(FEATURE_NAME, version.level), 0)]
    records += [(FeatureLevelRecord(name, given[name]), 0) for name in names]
    return tuple(records)


def dependency_error(name: str, level: int, levels: Mapping[str, int]) -> str | None:
    """Return why a feature can't have this level if the others have `levels`, or None if it can (Feature.validateVersion)."""
    known = FEATURES.get(name)
    if known is None:
        return f"Feature {name} not found."
    if not 0 <= level < len(known):
        return f"No feature:{name} with feature level {level}"
    if level >= 1 and levels.get(FEATURE_NAME, 0) < MINIMUM.level:
        return f"{name} could not be set to {level} because it depends on {FEATURE_NAME}={MINIMUM.level} ({MINIMUM})"
    for other, needed in known[level].dependencies:
        if levels.get(other, -1) < needed:
            return f"{name} could not be set to {level} because it depends on {other} level {needed}"
    return None
