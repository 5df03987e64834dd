"""All metadata of a cluster at one offset of its log (Kafka MetadataImage, MetadataProvenance, ProducerIdsImage)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kops.metadata.image.parts.cluster import ClusterImage
from kops.metadata.image.parts.configs import ConfigurationsImage
from kops.metadata.image.parts.features import FeaturesImage
from kops.metadata.image.parts.quotas import ClientQuotasImage
from kops.metadata.image.parts.security import AclsImage, DelegationTokensImage, ScramImage
from kops.metadata.image.parts.topics import TopicsImage

NO_PRODUCER_ID: Final = -1


@dataclass(frozen=True, slots=True)
class MetadataProvenance:
    """The last record in an image: its offset, and the epoch and time of its batch. `is_offset_batch_aligned` is true if it is the last
    record of its batch, so that a snapshot may end there.
    """

    last_contained_offset: int = -1
    last_contained_epoch: int = -1
    last_contained_log_time_ms: int = -1
    is_offset_batch_aligned: bool = False

    @property
    def snapshot_id(self) -> tuple[int, int]:
        """The end offset and epoch of a snapshot of this image."""
        return self.last_contained_offset + 1, self.last_contained_epoch


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """All parts. `next_producer_id` is NO_PRODUCER_ID until a block of ids has been allocated. An image is immutable."""

    provenance: MetadataProvenance = MetadataProvenance()
    features: FeaturesImage = field(default_factory=FeaturesImage)
    cluster: ClusterImage = field(default_factory=ClusterImage)
    topics: TopicsImage = field(default_factory=TopicsImage)
    configs: ConfigurationsImage = field(default_factory=ConfigurationsImage)
    client_quotas: ClientQuotasImage = field(default_factory=ClientQuotasImage)
    next_producer_id: int = NO_PRODUCER_ID
    acls: AclsImage = field(default_factory=AclsImage)
    scram: ScramImage = field(default_factory=ScramImage)
    delegation_tokens: DelegationTokensImage = field(default_factory=DelegationTokensImage)

    @property
    def offset(self) -> int:
        """The offset of the last record, or -1 if there is none."""
        return self.provenance.last_contained_offset

    @property
    def is_empty(self) -> bool:
        """Whether the image has no data. Registered controllers don't count (MetadataImage.isEmpty)."""
        return not (
            self.features.levels
            or self.features.metadata_version
            or self.cluster.brokers
            or self.topics.by_id
            or self.configs.resources
            or self.client_quotas.entities
            or self.next_producer_id != NO_PRODUCER_ID
            or self.acls.acls
            or self.scram.mechanisms
            or self.delegation_tokens.tokens
        )


EMPTY: Final = MetadataImage()
