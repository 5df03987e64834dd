"""Finalized features and the metadata.version (Kafka FeaturesImage, FeaturesDelta)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kops.metadata.image.parts.changes import contradiction, remove_unnamed
from kops.metadata.image.parts.shared_map import SharedMap
from kops.metadata.metadata_version import FEATURE_NAME, MINIMUM, MetadataVersion, from_level

if TYPE_CHECKING:
    from kops.protocol.messages import FeatureLevelRecord

KRAFT_FEATURE: Final = "kraft.version"
ELR_FEATURE: Final = "eligible.leader.replicas.version"


@dataclass(frozen=True, slots=True)
class FeaturesImage:
    """`levels` are the finalized levels above 0 of all features except metadata.version and kraft.version."""

    levels: SharedMap[str, int] = field(default_factory=SharedMap)
    metadata_version: MetadataVersion | None = None

    @property
    def is_elr_enabled(self) -> bool:
        """Whether partitions track eligible leader replicas (KIP-966)."""
        return self.levels.get(ELR_FEATURE, 0) >= 1


class FeaturesDelta:
    """The changes that records make to the features."""

    def __init__(self, image: FeaturesImage) -> None:
        self.image = image
        self.changes: dict[str, int | None] = {}
        self.metadata_version_change: MetadataVersion | None = None

    def replay_feature_level(self, record: FeatureLevelRecord) -> None:
        """Replay a level. Raises DecodeError for an unknown metadata.version."""
        if record.name == FEATURE_NAME:
            version = from_level(record.feature_level)
            if version is None:
                raise contradiction(
                    "Unsupported metadata version - if you are currently upgrading your cluster, please ensure the metadata version is set "
                    f"to {MINIMUM} (or higher) before updating the software version. The metadata version can be updated via the "
                    "`kafka-features` command-line tool."
                )
            self.metadata_version_change = version
        elif record.name != KRAFT_FEATURE:  # some controllers wrote one, but the raft layer's own record sets it (KAFKA-18979)
            self.changes[record.name] = record.feature_level or None

    def finish_snapshot(self) -> None:
        """Finish a snapshot: remove everything that it did not name."""
        remove_unnamed(self.image.levels, self.changes)

    def apply(self) -> FeaturesImage:
        """Return the image with the changes."""
        return FeaturesImage(self.image.levels.changed(self.changes), self.metadata_version_change or self.image.metadata_version)
