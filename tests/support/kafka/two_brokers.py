"""A kops node and a real Kafka node that get the same requests. Their answers are compared with ids, times and places masked."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kops.protocol.declaration import ZERO_UUID, Message
from kops.protocol.errors import by_code
from kops.protocol.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    MetadataRequest,
    MetadataResponse,
)
from kops.protocol.messages.create_topics_request import CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig
from kops.protocol.messages.delete_topics_request import DeleteTopicState
from kops.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsTopic
from kops.protocol.messages.metadata_request import MetadataRequestTopic
from tests.support.nodes.raw_client import PATIENCE_S, RawClient, plain

CLOSED = "the connection is closed"
_TEXTS = {"error_message", "batch_index_error_message"}
_PLACES = {"host", "port", "log_dir", "total_bytes", "usable_bytes"}


class Side:
    """One of the two nodes. `session_id` is that of the last answer that has one. With `keeps_texts` error messages are compared, too."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.client = RawClient(bootstrap)
        self.bootstrap = bootstrap
        self.ids: dict[str, bytes] = {}
        self.session_id = 0
        self.keeps_texts = False

    def create(
        self, topic: str, *, partitions: int = 1, config: Mapping[str, str] | None = None, replicas: Sequence[Sequence[int]] = ()
    ) -> None:
        """Create a topic with one replica, or with the given replicas of each partition. Wait until its leaders are known."""
        configs = [CreatableTopicConfig(name, value) for name, value in (config or {}).items()]
        partitions = len(replicas) or partitions
        made = CreatableTopic(topic, -1 if replicas else partitions, -1 if replicas else 1, configs=configs)
        made.assignments = [CreatableReplicaAssignment(number, list(each)) for number, each in enumerate(replicas)]
        request = CreateTopicsRequest([made], timeout_ms=30_000)
        response = self.client.ask(request, 7)
        assert isinstance(response, CreateTopicsResponse), self.name
        assert [one.error_code for one in response.topics] == [0], (self.name, response)
        deadline = time.monotonic() + PATIENCE_S
        while not (self._is_led(topic, partitions) and (replicas or self._leads(topic, partitions))):
            assert time.monotonic() < deadline, f"{self.name}: no leader of {topic}"
            time.sleep(0.02)

    def delete(self, topic: str) -> None:
        """Delete a topic and wait until the broker that answers knows it."""
        response = self.client.ask(DeleteTopicsRequest([DeleteTopicState(topic)], timeout_ms=30_000), 6)
        assert isinstance(response, DeleteTopicsResponse), self.name
        assert [one.error_code for one in response.responses] == [0], (self.name, response)
        deadline = time.monotonic() + PATIENCE_S
        while not self._is_led(topic, 0):
            assert time.monotonic() < deadline, f"{self.name}: {topic} is still there"
            time.sleep(0.02)

    def _is_led(self, topic: str, partitions: int) -> bool:
        found = self.client.ask(MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False), 12)
        assert isinstance(found, MetadataResponse)
        (one,) = found.topics
        self.ids[topic] = one.topic_id
        return [each.error_code for each in one.partitions] == [0] * partitions

    def _leads(self, topic: str, partitions: int) -> bool:
        """Return whether the broker itself has learned that it leads, which may be later than its metadata reports it."""
        asked = [ListOffsetsPartition(number, -1, -1) for number in range(partitions)]
        found = self.client.ask(ListOffsetsRequest(-1, 0, [ListOffsetsTopic(topic, asked)]), 6)
        assert isinstance(found, ListOffsetsResponse)
        return [one.error_code for one in found.topics[0].partitions] == [0] * partitions

    def ask(self, message: Message, version: int) -> Any:
        """Return the masked answer, or CLOSED."""
        response = self.client.ask(message, version)
        if response is None:
            return CLOSED
        self.session_id = getattr(response, "session_id", self.session_id)
        return self.masked(response)

    def masked(self, message: Message) -> Any:
        """Return a message with names instead of ids, places and times. Lists whose order Kafka leaves to a hash map are sorted."""
        return _sorted(plain(message, self._mask))

    def _mask(self, name: str, value: Any) -> Any:
        if name == "topic_id":
            names = {topic_id: topic for topic, topic_id in self.ids.items()} | {ZERO_UUID: "none"}
            return names.get(value, "unknown")
        if name in _TEXTS:
            return value if self.keeps_texts or value is None else "text"
        if name in _PLACES:
            return value if value in ("", -1) else name
        if name == "session_id":
            return bool(value)
        if name in ("log_append_time_ms", "last_timestamp") and value > 0:
            return "a time"
        if name == "error_code":
            return by_code(value).name
        return value


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(each) for name, each in value.items()}
    if isinstance(value, list):
        ordered = [_sorted(each) for each in value]
        keys = ("name", "topic", "topic_name", "topic_id", "index", "partition", "partition_index")
        if all(isinstance(each, dict) and any(key in each for key in keys) for each in ordered):
            return sorted(ordered, key=lambda each: [str(each.get(key, "")).rjust(5) for key in keys])
        return ordered
    return value


def differences(kops: Iterable[tuple[str, Any]], kafka: Iterable[tuple[str, Any]]) -> list[str]:
    """Return how the answers of the two differ, one text for each step."""
    found = []
    for (label, ours), (same_label, theirs) in zip(kops, kafka, strict=True):
        assert label == same_label
        if ours != theirs:
            found.append(f"{label}\n    kops  {_told(ours, theirs)}\n    kafka {_told(theirs, ours)}")
    return found


def _told(value: Any, other: Any) -> str:
    """Return the part of a value that differs from the other."""
    while isinstance(value, dict) and isinstance(other, dict) and value.keys() == other.keys():
        (name, *more) = [name for name in value if value[name] != other[name]]
        if more:
            return str({name: value[name] for name in (name, *more)})
        value, other = value[name], other[name]
        if isinstance(value, list) and isinstance(other, list) and len(value) == len(other):
            pairs = [pair for pair in zip(value, other, strict=True) if pair[0] != pair[1]]
            if len(pairs) == 1:
                value, other = pairs[0]
    return str(value)
