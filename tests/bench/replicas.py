"""The cost of replicas in addition to that of their logs: CPU microseconds of a produce, of a follower's round at the leader, and of one at
the follower.

    python -m tests.bench.replicas [ROUNDS] [PARTITIONS]

Batches have 16 KiB, logs are on a disk, and there are no sockets: the brokers are connected as in `tests.support.parts.replicas`. In the
last line, PARTITIONS follow one leader, and one of them is written to at a time. This is a program, so that KOPS_PURE can be set. It prints
`{name: microseconds}` as JSON.
"""

from __future__ import annotations

import itertools
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

from kops.broker.network.events.loop import Loop
from kops.files import OsFiles
from kops.protocol.messages import PartitionRecord, TopicRecord
from kops.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kops.records import BatchBuilder
from kops.records.log_offsets import Isolation, TopicPartition
from kops.replication.following.fetch_state import InitialFetchState
from kops.replication.following.fetcher import Fetcher, FetchSent
from kops.replication.following.followers import FollowerReplicas
from kops.replication.following.leader_endpoint import FetcherSettings, RemoteLeader
from kops.replication.leading.fetch import FetchInfo, FetchParams
from kops.replication.quota import UnboundedQuota
from kops.storage.formats.kafka_uuid import uuid_bytes
from tests.support.parts.managing import DIRECTORY_IDS
from tests.support.parts.managing import Broker as Disks
from tests.support.parts.replicas import TOPIC_ID, TP, World

RECORDS, SIZE = 16, 1012
WARM_UP, LEADER, FOLLOWER = 200, 1, 2
LEADER_EPOCH = 0


class DiskWorld(World):
    """Brokers with logs on a disk and with a running clock."""

    def __init__(self, folder: Path, *node_ids: int) -> None:
        self.folder = folder
        super().__init__(*node_ids)

    def make_loop(self) -> Any:
        return Loop()

    def make_disks(self, node_id: int, log_dirs: Sequence[str]) -> Disks:
        path = self.folder / str(node_id)
        path.mkdir(parents=True)
        return Disks(OsFiles(), [str(path / "a")], clock=cast("Any", self.loop.now_ms))

    def create_topics(self, count: int) -> None:
        """Create `orders` with this number of partitions, all led by the first broker."""
        directories = [uuid_bytes(DIRECTORY_IDS["/a"])] * len(self.brokers)
        replicas = sorted(self.brokers)
        partitions = [
            PartitionRecord(number, TOPIC_ID, replicas, replicas, leader=LEADER, leader_epoch=LEADER_EPOCH, directories=directories)
            for number in range(count)
        ]
        self.replay(TopicRecord(TP.topic, TOPIC_ID), *partitions)


def batch() -> bytes:
    """Return a batch of 16 KiB as a producer sends it."""
    chance = random.Random(1)
    builder = BatchBuilder()
    for _ in range(RECORDS):
        builder.append(time.time_ns() // 1_000_000, None, chance.randbytes(SIZE))
    return builder.build()


def measure(run: Callable[[], object], rounds: int) -> float:
    """Return the CPU microseconds of one call, after a warm-up."""
    for _ in range(WARM_UP):
        run()
    started = time.process_time()
    for _ in range(rounds):
        run()
    return round((time.process_time() - started) / rounds * 1e6, 1)


def ignore(answer: object) -> None:
    """Ignore the answer."""


def appends(folder: Path, rounds: int) -> dict[str, float]:
    """Append to the log alone, and through the replica manager of its only replica."""
    world = DiskWorld(folder, LEADER)
    world.create_topics(1)
    data, broker = batch(), world.brokers[LEADER]
    log, append = broker.log, broker.manager.append_records
    return {
        "append to the log alone": measure(lambda: log.append_as_leader(data, LEADER_EPOCH), rounds),
        "produce, acks=1": measure(lambda: append({TP: data}, 1, 1000, ignore), rounds),
        "produce, acks=all, one replica": measure(lambda: append({TP: data}, -1, 1000, ignore), rounds),
    }


def rounds_of_two(folder: Path, rounds: int) -> dict[str, float]:
    """Let a fetch wait for a produce, which the next fetch acknowledges. Then append the same batches at the follower."""
    world = DiskWorld(folder, LEADER, FOLLOWER)
    world.cut.add((FOLLOWER, LEADER))
    world.create_topics(1)
    data, leader, follower = batch(), world.brokers[LEADER], world.brokers[FOLLOWER]
    params = FetchParams(FOLLOWER, world.epochs[FOLLOWER], 500, 1, 10 << 20, Isolation.LOG_END)
    quota = UnboundedQuota()

    def lead() -> None:
        info = FetchInfo(leader.log.log_end_offset, 0, 1 << 20, LEADER_EPOCH, LEADER_EPOCH, TOPIC_ID)
        leader.manager.fetch(params, [(TP, info)], quota, ignore)
        leader.manager.append_records({TP: data}, -1, 10_000, ignore)
        world.loop.run_once(0)

    found = {"leader: produce, acks=all, and the fetch that waits for it": measure(lead, rounds)}
    replicas = FollowerReplicas(follower.manager.hosted.get_or_raise, quota, lambda key, offset: None)
    fetcher = Fetcher(RemoteLeader(FetcherSettings(FOLLOWER, lambda: 0), quota), replicas, world.loop.now_ms, set())
    fetcher.add_partitions({TP: InitialFetchState(TOPIC_ID, LEADER_EPOCH, 0)})
    offsets = itertools.count(0, RECORDS)
    fetched = [_bytes(leader.log.read(offset, len(data), Isolation.LOG_END)) for offset in itertools.islice(offsets, rounds + WARM_UP)]
    left = iter(fetched)

    def follow() -> None:
        sent = fetcher.next_request()
        assert isinstance(sent, FetchSent)
        row = PartitionData(0, 0, leader.log.high_watermark, log_start_offset=0, records=next(left))
        response = FetchResponse(session_id=1, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])])
        fetcher.on_response(sent, response, 17)

    return {**found, "follower: request made, response appended": measure(follow, rounds)}


def _bytes(read: Any) -> bytes:
    return bytes(read.records.read_at(read.records.start, read.records.size))


def many(folder: Path, count: int, rounds: int) -> dict[str, float]:
    """Produce until the acknowledgement while many partitions are followed. Includes both brokers and the encoding of their messages."""
    world = DiskWorld(folder, LEADER, FOLLOWER)
    world.create_topics(count)
    data, chance = batch(), random.Random(count)
    answers: list[object] = []

    def produce() -> None:
        key = TopicPartition(TP.topic, chance.randrange(count))
        answers.clear()
        world.brokers[LEADER].manager.append_records({key: data}, -1, 60_000, answers.append)
        while not answers:
            world.loop.run_once()

    return {f"produce and its acknowledgement, {count} partitions followed": measure(produce, rounds)}


def main() -> None:
    """Run the benchmark and print the figures."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 200
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        figures = {**appends(path / "one", rounds), **rounds_of_two(path / "two", rounds)}
        for partitions in (1, count):
            figures |= many(path / f"many-{partitions}", partitions, rounds // 10)
    json.dump(figures, sys.stdout, indent=2)
    print()


if __name__ == "__main__":
    main()
