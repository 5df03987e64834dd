"""A leader and a follower over logs on disk: slices of segments cross between them."""

from __future__ import annotations

from kops.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kops.records.log_offsets import Isolation, TopicPartition
from kops.replication.following.fetch_state import InitialFetchState
from kops.replication.following.fetcher import Fetcher, FetchSent
from kops.replication.following.followers import FollowerReplicas
from kops.replication.following.leader_endpoint import FetcherSettings, RemoteLeader
from kops.replication.leading.fetch import FetchInfo, FetchParams
from kops.replication.leading.partition import Partition
from kops.replication.log import ReplicaLog
from kops.replication.quota import UnboundedQuota
from tests.support.logs.twins.open_log import OpenLog, batch
from tests.support.parts.replicating import TOPIC_ID, TP, Registration, World


class RealWorld(World):
    """A broker whose only log is on a disk."""

    def __init__(self, broker_id: int) -> None:
        super().__init__(broker_id)
        self.disk = OpenLog()
        self.real = Partition(TP, TOPIC_ID, self.surroundings())

    def open(self) -> ReplicaLog:
        return self.disk.log

    def truncate_to(self, offsets: dict[TopicPartition, int], *, is_future: bool = False) -> None:
        self.disk.log.truncate_to(offsets[TP])


def replicate(leader: RealWorld, follower: RealWorld, fetcher: Fetcher) -> None:
    """Run one fetch and its answer."""
    sent = fetcher.next_request()
    assert isinstance(sent, FetchSent)
    info: FetchInfo = sent.asked[TP]
    params = FetchParams(follower.broker_id, follower.epochs[follower.broker_id], 0, 1, 1_000_000, Isolation.LOG_END)
    read = leader.real.fetch_records(params, info, leader.now_ms, 1_000_000, min_one_batch=True, update_fetch_state=True)
    row = PartitionData(0, 0, read.high_watermark, log_start_offset=read.log_start_offset)
    if read.diverging_epoch is not None:
        row.diverging_epoch.epoch, row.diverging_epoch.end_offset = read.diverging_epoch[:2]
    elif read.fetched is not None:
        row.records = read.fetched.records
    response = FetchResponse(responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=[row])])
    fetcher.on_response(sent, response, 18)


def following(world: RealWorld) -> Fetcher:
    replicas = FollowerReplicas(lambda key: world.real, UnboundedQuota(), lambda key, offset: None)
    fetcher = Fetcher(RemoteLeader(FetcherSettings(world.broker_id, lambda: 20), UnboundedQuota()), replicas, lambda: world.now_ms, set())
    offset = world.disk.log.log_end_offset
    fetcher.add_partitions({TP: InitialFetchState(TOPIC_ID, world.real.leader_epoch, offset)})
    return fetcher


def test_batches_are_replicated_and_divergence_is_cut() -> None:
    first, second = RealWorld(1), RealWorld(2)
    registration = Registration(1, 5, 7, isr=[1, 2], replicas=[1, 2])
    first.real.make_leader(registration, first.open)
    second.real.make_follower(registration, second.open)
    first.real.append_records_to_leader(batch(3), -1)
    fetcher = following(second)
    for _ in range(3):
        replicate(first, second, fetcher)
    assert first.disk.log.high_watermark == second.disk.log.high_watermark == second.disk.log.log_end_offset == 3
    assert second.disk.log.latest_epoch == 5
    # The second broker becomes leader without the last record of the first, which then follows and cuts it off.
    first.real.append_records_to_leader(batch(2), 1)
    registration = Registration(2, 6, 8, isr=[1, 2], replicas=[1, 2])
    second.real.make_leader(registration, second.open)
    second.real.append_records_to_leader(batch(1), 1)
    first.real.make_follower(registration, first.open)
    fetcher = following(first)
    for _ in range(4):
        replicate(second, first, fetcher)
    assert first.disk.log.log_end_offset == second.disk.log.log_end_offset == 4
    assert first.disk.log.epochs.entries == second.disk.log.epochs.entries
    assert second.real.check_enough_replicas_reach_offset(4) == (True, "NONE")
