"""The cluster's metadata as `__cluster_metadata-0` tells it: records in, an image out (pure).

Format: Kafka's MetadataRecordSerde (frame version, api key, version, body) and the descriptors of the metadata module; KIP-500, KIP-631,
KIP-858.
"""

from kops.metadata.cluster_image import ClusterImage, PartitionRegistration
from kops.metadata.records import MetadataRecord, read_metadata_record

__all__ = ["ClusterImage", "MetadataRecord", "PartitionRegistration", "read_metadata_record"]
