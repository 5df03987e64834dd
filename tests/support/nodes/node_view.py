"""What a node shows to clients, in the terms of the corpus: the keys of `modes.<mode>.seen` of a `broker-damage` case, and the records.

Everything is requested over the network, as by a client. Groups are the exception: their commits are read from `__consumer_offsets`.
"""

from __future__ import annotations

from typing import Any

from kops.errors import DecodeError
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kops.protocol.messages.fetch_request import FetchPartition, FetchTopic
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.record_values import read_coordinator_key, read_coordinator_value
from kops.protocol.registry import GROUP_RECORDS
from kops.records import Batch, BytesSource, Damage, Record, scan
from kops.storage.formats.kafka_uuid import uuid_text
from tests.support.nodes.controllers import ask
from tests.support.nodes.networking import Client

FETCH_VERSION, LIST_OFFSETS_VERSION, LOG_DIRS_VERSION = 12, 7, 5
EARLIEST, LATEST = -2, -1
OFFSETS_TOPIC = "__consumer_offsets"


class NodeView:
    """The answers of a node to one client."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def topics(self) -> list[dict[str, Any]]:
        """`topics`: all of them by name."""
        told = ask(self._client, MetadataRequest(None), MetadataResponse)
        return [
            {
                "name": topic.name,
                "topicId": uuid_text(topic.topic_id),
                "partitions": [
                    {"partition": one.partition_index, "leader": one.leader_id, "isr": one.isr_nodes}
                    for one in sorted(topic.partitions, key=lambda one: one.partition_index)
                ],
            }
            for topic in sorted(told.topics, key=lambda topic: str(topic.name))
        ]

    def cluster_id(self) -> str | None:
        """`clusterId`."""
        return ask(self._client, MetadataRequest([]), MetadataResponse).cluster_id

    def log_dirs(self) -> dict[str, dict[str, Any]]:
        """`logDirs`, by the last names of the directories. Errors are names of Kafka's exceptions."""
        told = ask(self._client, DescribeLogDirsRequest(None), DescribeLogDirsResponse, LOG_DIRS_VERSION)
        assert told.error_code == 0
        return {
            found.log_dir.rpartition("/")[2]: {
                "error": by_code(found.error_code).exception or None,
                "partitions": sorted(f"{topic.name}-{one.partition_index}" for topic in found.topics for one in topic.partitions),
            }
            for found in told.results
        }

    def offset(self, topic: str, partition: int, which: int) -> int | str:
        """Return the first or the last offset, or the name of an error."""
        request = ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, [ListOffsetsPartition(partition, -1, which)])])
        told = ask(self._client, request, ListOffsetsResponse, LIST_OFFSETS_VERSION).topics[0].partitions[0]
        return by_code(told.error_code).name if told.error_code else told.offset

    def partition(self, topic: str, partition: int) -> tuple[dict[str, Any], list[Record]]:
        """Return an element of `partitions` and its records: all from the first offset up to the end or to the first that cannot be read.

        `error` is the name of the broker's error, or `damaged-batch` if it sends a batch whose checksum is wrong.
        """
        seen: dict[str, Any] = {"topic": topic, "partition": partition}
        first, end = (self.offset(topic, partition, which) for which in (EARLIEST, LATEST))
        if isinstance(first, str) or isinstance(end, str):
            return {**seen, "records": 0, "error": first}, []
        records, reached, error = self._read(topic, partition, first, end)
        seen |= {"beginningOffset": first, "endOffset": end, "reachedOffset": reached, "records": len(records), "error": error}
        return seen, records

    def _read(self, topic: str, partition: int, position: int, end: int) -> tuple[list[Record], int, str | None]:
        records: list[Record] = []
        while position < end:
            wanted = FetchPartition(partition, fetch_offset=position, partition_max_bytes=1 << 20)
            request = FetchRequest(max_wait_ms=0, session_epoch=-1, topics=[FetchTopic(topic, partitions=[wanted])])
            told = ask(self._client, request, FetchResponse, FETCH_VERSION).responses[0].partitions[0]
            if told.error_code:
                return records, position, by_code(told.error_code).name
            assert isinstance(told.records, bytes | bytearray | memoryview)
            batches = list(scan(BytesSource(bytes(told.records)), resync=False))
            assert batches, f"nothing at {position} of {topic}-{partition}, which ends at {end}"
            for batch in batches:
                if isinstance(batch, Damage):
                    return records, position, "damaged-batch"
                records += [record for record in _data(batch) if record.offset >= position]
                position = batch.next_offset
        return records, position, None

    def groups(self) -> list[dict[str, Any]]:
        """`groups`: the contents of the partitions of `__consumer_offsets` that are led here, as a coordinator would load them."""
        committed: dict[str, dict[str, int]] = {}
        for topic in self.topics():
            if topic["name"] == OFFSETS_TOPIC:
                for one in topic["partitions"]:
                    for record in self.partition(OFFSETS_TOPIC, one["partition"])[1]:
                        _replay(committed, record)
        return [{"group": group, "offsets": dict(sorted(offsets.items()))} for group, offsets in sorted(committed.items()) if offsets]


def _data(batch: Batch) -> list[Record]:
    return [] if batch.is_control else list(batch.records())


def _replay(committed: dict[str, dict[str, int]], record: Record) -> None:
    assert record.key is not None
    try:
        key = read_coordinator_key(record.key, GROUP_RECORDS)
    except DecodeError as error:
        raise AssertionError(f"a commit that can't be read, at offset {record.offset}: {error}") from error
    if not isinstance(key, OffsetCommitKey):
        return
    offsets = committed.setdefault(key.group, {})
    name = f"{key.topic}-{key.partition}"
    if record.value is None:
        offsets.pop(name, None)
    else:
        value, _ = read_coordinator_value(record.key, record.value, GROUP_RECORDS)
        assert isinstance(value, OffsetCommitValue)
        offsets[name] = value.offset
