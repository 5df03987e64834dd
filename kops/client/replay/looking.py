"""Looks in the cluster's logs for batches whose answer was lost.

A broker forgets a producer whose latest record is older than producer.id.expiration.ms: every ten minutes, and when it loads a log (Kafka's
ProducerStateManager.removeExpiredProducers, loadFromSnapshot). Replayed records are old, so a restarted broker may accept a duplicate. The
log itself settles the question: each batch in it has the producer's id and sequence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kops.client.client import Client
from kops.client.consumer.faces.batches import BatchConsumer
from kops.client.leaders.offsets import list_offsets
from kops.client.offsets import LATEST
from kops.errors import ApiError
from kops.records.log_offsets import TopicPartition

__all__ = ["Doubt", "end_offsets", "find_batches"]

_TURN_MS = 200


class Doubt(NamedTuple):
    """A batch that may be in a partition, at or after `offset`, with these numbers."""

    offset: int
    producer_id: int
    producer_epoch: int
    sequence: int


def end_offsets(client: Client, keys: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end of each partition. A new leader answers only when its high watermark includes all earlier records
    (OFFSET_NOT_AVAILABLE)."""
    found = {}
    for key, listed in list_offsets(client, dict.fromkeys(keys, LATEST)).items():
        if isinstance(listed, ApiError):
            raise ApiError(listed.name, f"{key.topic}-{key.partition}: {listed}")
        found[key] = listed.offset
    return found


def find_batches(client: Client, doubts: Mapping[TopicPartition, Doubt]) -> dict[TopicPartition, int]:
    """Return the base offsets of the batches that are in the log. Raises ApiError and UnreachableError."""
    ends = end_offsets(client, list(doubts))
    consumer = BatchConsumer(client, {key: doubt.offset for key, doubt in doubts.items() if doubt.offset < ends[key]})
    found: dict[TopicPartition, int] = {}
    while positions := consumer.positions:
        for key, position in positions.items():
            if position >= ends[key] or key in found:
                consumer.drop(key)
        for fetched in consumer.poll(_TURN_MS):
            batch, doubt = fetched.batch, doubts[fetched.key]
            if (batch.producer_id, batch.producer_epoch, batch.base_sequence) == doubt[1:]:
                found[fetched.key] = batch.base_offset
    return found
