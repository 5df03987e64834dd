"""GroupTwins for consumer groups: metadata that changes, tasks, and messages with topics and partitions in any order."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from kops.coordinators.runtime.records import read_record
from kops.coordinators.runtime.result import CoordinatorResult
from kops.protocol.declaration import Message
from kops.protocol.json_text import to_json
from kops.protocol.messages import consumer_group_describe_response as describing
from kops.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kops.protocol.messages.sync_group_response import SyncGroupResponse
from kops.protocol.registry import GROUP_RECORDS
from tests.support.kafka.twins.group_twins import GroupTwins
from tests.support.parts.groups.coordinator_images import Delta, Image

UNORDERED = {
    "ConsumerGroupCurrentMemberAssignmentValue",
    "ShareGroupCurrentMemberAssignmentValue",
    "ShareGroupStatePartitionMetadataValue",
}
"""Records with maps whose order does not matter."""


class ConsumerTwins(GroupTwins):
    """The twins. The assignments of members and the target assignments are compared without order."""

    version = 10
    their_image: Any = None

    def change_topics(self, topics: Mapping[str, tuple[bytes, int]]) -> None:
        """Create, delete and extend topics."""
        self.version = version = self.version + 1
        before = self.java.image(self.topics) if self.their_image is None else self.their_image
        delta, self.their_image = self.java.changed_image(before, self.topics, topics, version)
        image = Image(topics, version)
        self.theirs.shard.onMetadataUpdate(delta, self.their_image)
        self.timeline.offset = self.offset
        self.ours.on_metadata_update(Delta.between(Image(self.topics), image), image)
        self.topics = topics

    def run_tasks(self) -> int:
        """Run the tasks that both have given to their executors. Return how many there were."""
        self.theirs.collect()
        assert self.theirs.tasks.keys() == self.executor.tasks.keys()
        tasks, self.executor.tasks = self.executor.tasks, {}
        real, self.theirs.tasks = self.theirs.tasks, {}
        for key, (task, operation) in tasks.items():
            their_task, their_operation = real[key]
            resolved, their_resolved = task(), their_task.run()
            self.operate(partial(their_operation.onComplete, their_resolved, None), partial(operation, resolved, None))
        return len(tasks)

    def compare_messages(self, ours: Message, theirs: Any, *, unordered: str | None = None) -> None:
        version = ours.VERSIONS[-1]
        real = type(ours).decode(self.java.message_bytes(theirs, version), version)
        assert ordered(ours, version) == ordered(real, version)

    def describe(self, group_ids: list[str]) -> None:
        """Check that both describe the committed groups in the same way."""
        theirs = self.theirs.shard.consumerGroupDescribe(group_ids, self.java.long(self.committed_offset))
        for own, real in zip(self.ours.consumer_group_describe(group_ids), theirs, strict=True):
            answer = self.java.make("common.message.ConsumerGroupDescribeResponseData")
            answer.groups().add(real)
            self.compare_messages(describing.ConsumerGroupDescribeResponse(groups=[own]), answer)

    def _write(self, ours: CoordinatorResult[Any], theirs: Any, producer: tuple[int, int]) -> None:
        found = [read_record(key, value, GROUP_RECORDS) for key, value in self.java.records(theirs.records(), self.theirs.serde)]
        own = [(record.key_bytes(), _ordered_value(record)) for record in ours.records]
        real = [(record.key_bytes(), _ordered_value(record)) for record in found]
        if own != real:
            assert sorted(own, key=repr) == sorted(real, key=repr), (own, real)
        ours.records = found
        super()._write(ours, theirs, producer)


def _ordered_value(record: Any) -> Any:
    if record.value is None:
        return None
    if type(record.value).__name__ in UNORDERED:
        return ordered(record.value, record.version)
    return record.value_bytes()


def ordered(message: Message, version: int) -> Any:
    """Return a message as JSON, with sorted topics and partitions."""
    if isinstance(message, SyncGroupResponse) and len(message.assignment) > 2:
        number = int.from_bytes(message.assignment[:2], "big")
        assignment = ConsumerProtocolAssignment.decode(message.assignment[2:], number)
        return message.error_code, message.protocol_name, message.protocol_type, number, ordered(assignment, number)
    return _sorted(to_json(message, version))


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        found = {key: _sorted(inner) for key, inner in value.items()}
        if "partitions" in found and found.get("assignmentEpochs"):
            pairs = sorted(zip(found["partitions"], found["assignmentEpochs"], strict=True))
            found["partitions"], found["assignmentEpochs"] = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
        elif found.get("partitions") and isinstance(found["partitions"][0], int):
            found["partitions"] = sorted(found["partitions"])
        for name in ("subscribedTopicNames",):
            if name in found:
                found[name] = sorted(found[name])
        return found
    if isinstance(value, list):
        items = [_sorted(item) for item in value]
        return sorted(items, key=repr) if items and isinstance(items[0], dict) and {"topicId", "topic"} & items[0].keys() else items
    return value
