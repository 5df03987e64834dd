"""The key of a share partition: a group and a partition of a topic. It determines the partition of __share_group_state with its state.

Source: SharePartitionKey, ShareCoordinatorService.partitionFor.
"""

from __future__ import annotations

import base64
import re
from typing import Final, NamedTuple

from kops.config.values.java import parse_int
from kops.config.values.java_hash import string_hash
from kops.protocol.json_text import uuid_text

_MIN_INT: Final = -(2**31)
_UUID: Final = re.compile("[A-Za-z0-9_-]{22}(==)?")


class SharePartitionKey(NamedTuple):
    """A group, a topic id and a partition."""

    group_id: str
    topic_id: bytes
    partition: int

    @property
    def coordinator_key(self) -> str:
        """The key in FindCoordinator: `group:topic id:partition`."""
        return f"{self.group_id}:{uuid_text(self.topic_id)}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> SharePartitionKey:
        """Parse a `coordinator_key`. The group's name may contain colons. Raises ValueError."""
        if not text:
            raise ValueError("Share partition key cannot be empty")
        parts = text.rstrip(":").split(":")
        if len(parts) < 3:
            raise ValueError(f"Invalid key format: expected - groupId:topicId:partition, found - {text}")
        *group, topic_id, partition = parts
        group_id = ":".join(group)
        if not group_id.strip():
            raise ValueError("GroupId must not be empty")
        if not _UUID.fullmatch(topic_id):
            raise ValueError(f"Invalid topic ID: {topic_id}")
        try:
            return cls(group_id, base64.urlsafe_b64decode(topic_id[:22] + "=="), parse_int(partition))
        except ValueError:
            raise ValueError(f"Invalid partition: {partition}") from None

    def state_partition(self, partition_count: int) -> int:
        """Return the partition of __share_group_state for this key, if the topic has `partition_count` partitions."""
        return java_abs(string_hash(self.coordinator_key)) % partition_count


def java_abs(bits: int) -> int:
    """Return Kafka's Utils.abs of an int, given as 32 bits: the smallest int becomes 0."""
    number = bits - (bits & 0x8000_0000) * 2
    return 0 if number == _MIN_INT else abs(number)
