"""The offsets of groups, as commands need them: fetch, set, delete. The admin client's operations do the work.

Source: Kafka's ListConsumerGroupOffsetsHandler, AlterConsumerGroupOffsetsHandler, DeleteConsumerGroupOffsetsHandler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kops.client.admin.core.operation import execute
from kops.client.admin.operations.group_offsets import (
    alter_consumer_group_offsets,
    delete_consumer_group_offsets,
    list_consumer_group_offsets,
)
from kops.client.client import Client
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.admin.core.operation import Steps
    from kops.client.admin.core.results import Results

Outcomes = dict[TopicPartition, ApiError | None]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """An offset of a group, with the leader epoch of the record before it, if known. `lag` is reported by brokers for share groups only."""

    offset: int
    leader_epoch: int | None = None
    metadata: str = ""
    lag: int | None = None


GroupOffsets = dict[TopicPartition, CommittedOffset]


def fetch_offsets(client: Client, group_ids: Iterable[str]) -> dict[str, GroupOffsets | ApiError]:
    """Return all committed offsets of each group. A group that does not exist has none."""
    found = execute(client, list_consumer_group_offsets(client, dict.fromkeys(group_ids))).outcomes()
    return {
        group_id: offsets
        if isinstance(offsets, ApiError)
        else {key: CommittedOffset(one.offset, one.leader_epoch, one.metadata) for key, one in offsets.items() if one is not None}
        for group_id, offsets in found.items()
    }


def commit_offsets(client: Client, group_id: str, offsets: Mapping[TopicPartition, int]) -> Outcomes:
    """Set offsets of a group without members. Asks again while the coordinator is not ready."""
    return _of_partitions(client, alter_consumer_group_offsets(client, group_id, offsets), offsets)


def delete_offsets(client: Client, group_id: str, keys: Iterable[TopicPartition]) -> Outcomes:
    """Delete a group's offsets of topics that no member reads. An error of the whole group applies to each partition."""
    wanted = list(keys)
    return _of_partitions(client, delete_consumer_group_offsets(client, group_id, wanted), wanted) if wanted else {}


def _of_partitions(client: Client, steps: Steps[Results[TopicPartition, None]], keys: Iterable[TopicPartition]) -> Outcomes:
    try:
        return dict(execute(client, steps).outcomes())
    except ApiError as error:
        return dict.fromkeys(keys, error)
