"""Directories of replicas on their way to the controller: they are sent in batches until it knows them."""

from __future__ import annotations

from collections.abc import Sequence

from kops.broker.controller_link.assignments import MAX_ASSIGNMENTS_PER_REQUEST, AssignmentsManager
from kops.errors import ApiError
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.protocol.errors import by_name
from kops.protocol.messages import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
)
from kops.protocol.messages.assign_replicas_to_dirs_response import DirectoryData, PartitionData, TopicData
from tests.support.parts.controller_stub import StubChannel
from tests.support.parts.manual_loop import ManualLoop

TOPIC, OTHER = b"t" * 16, b"o" * 16
DIR_A, DIR_B = b"a" * 16, b"b" * 16
Told = list[tuple[bytes, bytes, int]]


def image_of(partition_count: int, replicas: Sequence[int] = (1,)) -> MetadataImage:
    """Return an image with a topic of this many partitions, and broker 1 in epoch 9."""
    delta = MetadataDelta(EMPTY)
    delta.replay(RegisterBrokerRecord(broker_id=1, broker_epoch=9))
    delta.replay(TopicRecord(name="t", topic_id=TOPIC))
    for number in range(partition_count):
        delta.replay(PartitionRecord(partition_id=number, topic_id=TOPIC, replicas=list(replicas), isr=list(replicas), leader=replicas[0]))
    return delta.apply(MetadataProvenance(0, 0, 0, True))


class World:
    """A manager, its clock and its controller."""

    def __init__(self, image: MetadataImage) -> None:
        self.loop = ManualLoop()
        self.channel = StubChannel()
        self.image = image
        self.manager = AssignmentsManager(self.loop, self.channel, 1, lambda: self.image, draw=lambda: 0.5)

    def answer(self, *errors: str) -> Told:
        """Answer the request with one error per partition, in its order. Return the partitions of the request."""
        request = self.channel.sent[0][0]
        assert isinstance(request, AssignReplicasToDirsRequest)
        assert (request.broker_id, request.broker_epoch) == (1, 9)
        asked = asked_for(request)
        directories: dict[bytes, DirectoryData] = {}
        for (directory, topic_id, number), error in zip(asked, errors, strict=False):
            entry = TopicData(topic_id, [PartitionData(number, by_name(error).code)])
            directories.setdefault(directory, DirectoryData(directory)).topics.append(entry)
        self.channel.answer(AssignReplicasToDirsResponse(directories=list(directories.values())))
        return asked


def asked_for(request: AssignReplicasToDirsRequest) -> Told:
    """Return (directory, topic id, partition) of each partition in a request."""
    return [
        (directory.id, topic.topic_id, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    ]


def test_assignments_wait_for_each_other_and_go_together() -> None:
    world = World(image_of(3))
    known: list[int] = []
    world.manager.assign(TOPIC, 0, DIR_A, lambda: known.append(0))
    world.loop.advance(60)
    world.manager.assign(TOPIC, 1, DIR_B, lambda: known.append(1))
    world.manager.assign(TOPIC, 2, DIR_A, lambda: known.append(2))
    world.loop.advance(39)
    assert world.channel.sent == []
    world.loop.advance(1)
    assert world.manager.pending_count == 3
    assert world.answer("NONE", "NONE", "NONE") == [(DIR_A, TOPIC, 0), (DIR_A, TOPIC, 2), (DIR_B, TOPIC, 1)]
    assert sorted(known) == [0, 1, 2]
    assert world.manager.pending_count == 0
    world.loop.advance(100_000)
    assert world.channel.count == 1


def test_the_later_of_two_counts_and_what_is_pointless_is_dropped() -> None:
    world = World(image_of(1))
    world.manager.assign(TOPIC, 0, DIR_A)
    world.manager.assign(TOPIC, 0, DIR_B)
    world.manager.assign(TOPIC, 7, DIR_B)
    world.manager.assign(OTHER, 0, DIR_B)
    world.loop.advance(100)
    assert world.answer("NONE") == [(DIR_B, TOPIC, 0)]
    elsewhere = World(image_of(1, replicas=(2, 3)))
    elsewhere.manager.assign(TOPIC, 0, DIR_A)
    elsewhere.loop.advance(100_000)
    assert elsewhere.channel.count == elsewhere.manager.pending_count == 0


def test_one_request_at_a_time_and_a_new_word_wins_over_a_failed_one() -> None:
    world = World(image_of(2))
    known: list[str] = []
    world.manager.assign(TOPIC, 0, DIR_A, lambda: known.append("old"))
    world.manager.assign(TOPIC, 1, DIR_A)
    world.loop.advance(100)
    world.manager.assign(TOPIC, 0, DIR_B, lambda: known.append("new"))
    world.loop.advance(1000)
    assert world.channel.count == 1
    # One partition has an error and one is missing in the answer. Both are sent again, the first with its new directory.
    world.answer("NOT_CONTROLLER")
    world.loop.advance(100)
    assert world.answer("NONE", "NONE") == [(DIR_B, TOPIC, 0), (DIR_A, TOPIC, 1)]
    assert known == ["new"]


def test_a_request_that_fails_as_a_whole_is_repeated_with_growing_pauses() -> None:
    world = World(image_of(1))
    world.manager.assign(TOPIC, 0, DIR_A)
    pauses = []
    world.loop.advance(100)
    for failure in (ApiError("REQUEST_TIMED_OUT"), AssignReplicasToDirsResponse(error_code=by_name("STALE_BROKER_EPOCH").code)) * 4:
        world.channel.answer(failure)
        before = world.loop.time_ms
        while not world.channel.sent:
            world.loop.advance(10)
        pauses.append(int(world.loop.time_ms - before))
    assert pauses == [200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]
    world.answer("NONE")
    world.manager.assign(TOPIC, 0, DIR_B)
    world.loop.advance(100)
    assert world.channel.count == 10


def test_a_full_request_does_not_wait() -> None:
    world = World(image_of(MAX_ASSIGNMENTS_PER_REQUEST + 1))
    for number in range(MAX_ASSIGNMENTS_PER_REQUEST + 1):
        world.manager.assign(TOPIC, number, DIR_A)
    world.loop.advance()
    assert len(world.answer(*["NONE"] * MAX_ASSIGNMENTS_PER_REQUEST)) == MAX_ASSIGNMENTS_PER_REQUEST
    world.loop.advance(100)
    assert world.answer("NONE") == [(DIR_A, TOPIC, MAX_ASSIGNMENTS_PER_REQUEST)]


def test_nothing_is_told_behind_the_end() -> None:
    world = World(image_of(1))
    world.manager.assign(TOPIC, 0, DIR_A, world.channel.sent.clear)
    world.loop.advance(100)
    world.manager.assign(TOPIC, 0, DIR_B)
    world.manager.close()
    world.answer("NONE")
    world.manager.assign(TOPIC, 0, DIR_B)
    world.loop.advance(100_000)
    assert world.channel.count == 1
    assert world.loop.timer_count == 0
