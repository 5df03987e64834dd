"""The metadata of a cluster: Raft, the controller, and images built from records.

In: records, requests and the time. Out: images, records, responses. The package is pure. Format of the records: Kafka's MetadataRecordSerde
(frame version, API key, version, body), KIP-500, KIP-631 and KIP-858.
"""

from kops.metadata.cluster_image import ClusterImage, PartitionRegistration
from kops.metadata.records import MetadataRecord, read_metadata_record

__all__ = ["ClusterImage", "MetadataRecord", "PartitionRegistration", "read_metadata_record"]
