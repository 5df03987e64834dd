"""Controllers on loopback with their logs on disk: activation, requests held until they are committed, fail-over, snapshots."""

from __future__ import annotations

import errno
import itertools
import time
from pathlib import Path

import pytest

from kops.broker.controller.questions import Questions
from kops.broker.controller.server import ControllerServer
from kops.broker.controller_link.envelope import envelope, read_response
from kops.broker.network.events.loop import Loop
from kops.broker.quorum.raft_log import METADATA_DIR
from kops.broker.quorum.shared_server import SharedServer
from kops.files import FaultyFiles, OsFiles
from kops.metadata.controller.base.result import ControllerResult
from kops.metadata.image.metadata_image import MetadataImage
from kops.metadata.raft.roles.leader import LeaderState
from kops.protocol.api_keys import BY_NAME
from kops.protocol.connections.connection import Request
from kops.protocol.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    EnvelopeResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    add_raft_voter_request,
)
from kops.protocol.messages import describe_quorum_request as quorum
from kops.records import Batch, BytesSource, scan
from kops.storage.failures.load_errors import KafkaStorageError
from kops.storage.formats.kafka_uuid import uuid_bytes
from tests.support.nodes.controllers import Controllers, ask, register_broker
from tests.support.parts.controlling import CLUSTER_ID, creation, error_name

AN_HOUR_MS = 3_600_000
NOT_CONTROLLER, UNKNOWN_SERVER_ERROR = 41, -1


def image(controllers: Controllers, node_id: int) -> MetadataImage:
    """Return the image that a node has published."""
    return controllers.thread.call(lambda: controllers.nodes[node_id].running.shared.image)


def wait_for_topics(controllers: Controllers, *names: str) -> None:
    """Wait until all running nodes know exactly these topics."""
    running = [node for node in controllers.nodes.values() if node.server is not None]
    controllers.wait_for(lambda: all(set(node.running.shared.image.topics.by_name) == set(names) for node in running))


def describe_quorum() -> DescribeQuorumRequest:
    return DescribeQuorumRequest([quorum.TopicData("__cluster_metadata", [quorum.PartitionData(0)])])


def test_a_controller_alone_serves(tmp_path: Path) -> None:
    with Controllers(tmp_path) as controllers:
        assert controllers.active_id() == 1
        with controllers.client(1) as client:
            epoch = register_broker(client, 7)
            created = ask(client, creation("orders", partitions=3, factor=1), CreateTopicsResponse)
            assert [(topic.name, topic.error_code, topic.num_partitions) for topic in created.topics] == [("orders", 0, 3)]
            assert sorted(image(controllers, 1).topics.by_name["orders"].partitions) == [0, 1, 2]
            again = ask(client, creation("orders", partitions=3, factor=1), CreateTopicsResponse)
            assert again.topics[0].error_message == "Topic 'orders' already exists."
        controllers.stop(1)
        controllers.open(1)
        controllers.active_id()
        found = image(controllers, 1)
        assert sorted(found.topics.by_name["orders"].partitions) == [0, 1, 2]
        assert found.cluster.brokers[7].epoch == epoch
        with controllers.client(1) as client:
            beat = BrokerHeartbeatRequest(7, epoch, current_metadata_offset=1 << 40)
            assert not ask(client, beat, BrokerHeartbeatResponse).is_fenced


def test_a_mistake_is_answered_and_the_node_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mistaken(*_: object) -> None:
        raise KeyError("orders")

    monkeypatch.setattr(Questions, "describe_cluster", mistaken)
    with Controllers(tmp_path) as controllers, controllers.client(controllers.active_id()) as client:
        register_broker(client, 7)
        asked = DescribeClusterRequest(endpoint_type=2)
        assert ask(client, asked, DescribeClusterResponse).error_code == UNKNOWN_SERVER_ERROR
        core = controllers.nodes[1].running.controller.controller
        epoch = core.epoch
        with monkeypatch.context() as patched:
            patched.setattr(core, "handle", mistaken)
            created = ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse)
        assert [topic.error_code for topic in created.topics] == [UNKNOWN_SERVER_ERROR]
        controllers.wait_for(lambda: core.epoch > epoch)
        assert ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse).topics[0].error_code == 0
        # A response that cannot be encoded does not keep the client waiting, either.
        monkeypatch.setattr(core, "handle", lambda *_: ControllerResult(response=CreateTopicsResponse(throttle_time_ms="soon")))  # type: ignore[arg-type]
        created = ask(client, creation("clicks", partitions=1, factor=1), CreateTopicsResponse)
        assert [topic.error_code for topic in created.topics] == [UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("is_static", [False, True])
def test_a_quorum_outlives_its_active_controller(tmp_path: Path, is_static: bool) -> None:
    with Controllers(tmp_path, 3, is_static=is_static) as controllers:
        first = controllers.active_id()
        with controllers.client(first) as client:
            epoch = register_broker(client, 7)
            assert ask(client, creation("first", partitions=1, factor=1), CreateTopicsResponse).topics[0].error_code == 0
        wait_for_topics(controllers, "first")
        controllers.stop(first)
        second = controllers.active_id()
        assert second != first
        with controllers.client(second) as client:
            # The next leader knows the broker that the former one has unfenced, with its epoch.
            beat = BrokerHeartbeatRequest(7, epoch, current_metadata_offset=1 << 40)
            assert not ask(client, beat, BrokerHeartbeatResponse).is_fenced
            assert ask(client, creation("second", partitions=1, factor=1), CreateTopicsResponse).topics[0].error_code == 0
        controllers.open(first)
        wait_for_topics(controllers, "first", "second")
        with controllers.client(first) as client:
            refused = ask(client, creation("third", partitions=1, factor=1), CreateTopicsResponse)
            assert (refused.topics[0].error_code, refused.topics[0].error_message) == (
                NOT_CONTROLLER,
                f"The active controller appears to be node {second}.",
            )
    # A node that was late has a prefix, because the leader keeps writing no-op records.
    logs = [sorted((tmp_path / f"node-{node_id}" / METADATA_DIR).glob("*.log")) for node_id in (1, 2, 3)]
    contents = sorted((b"".join(path.read_bytes() for path in paths) for paths in logs), key=len)
    assert all(longest.startswith(shortest) for shortest, longest in itertools.pairwise(contents))


class LoopSetBack(Loop):
    """A loop whose wall clock can be set back by `behind_ms`."""

    behind_ms = 0

    def now_ms(self) -> int:
        return super().now_ms() - self.behind_ms


def test_an_election_does_not_wait_for_a_clock_that_is_set_back(tmp_path: Path) -> None:
    loop = LoopSetBack()
    with Controllers(tmp_path, 3, loop=loop) as controllers:
        first = controllers.active_id()
        loop.behind_ms = AN_HOUR_MS
        controllers.stop(first, cleanly=False)
        second = controllers.active_id()
        assert second != first
        with controllers.client(second) as client:
            assert ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse).topics[0].error_code != 0, "no broker"
            register_broker(client, 7)
            assert ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse).topics[0].error_code == 0
            (partition,) = ask(client, describe_quorum(), DescribeQuorumResponse).topics[0].partitions
    # The written records have the time of the clock.
    path = max((tmp_path / f"node-{second}" / METADATA_DIR).glob("*.log"))
    last = list(scan(BytesSource(path.read_bytes())))[-1]
    assert isinstance(last, Batch)
    now_ms = time.time_ns() // 1_000_000
    own = next(each for each in partition.current_voters if each.replica_id == second)
    for written_ms in (last.max_timestamp, own.last_fetch_timestamp):
        assert AN_HOUR_MS <= now_ms - written_ms < 2 * AN_HOUR_MS


def test_an_answer_waits_until_it_is_committed(tmp_path: Path) -> None:
    with Controllers(tmp_path, 3, settings={"controller.quorum.fetch.timeout.ms": "120000"}) as controllers:
        active = controllers.active_id()
        others = [node_id for node_id in controllers.nodes if node_id != active]
        with controllers.client(active) as client:
            register_broker(client, 7)
            for node_id in others:
                controllers.stop(node_id, cleanly=False)
            client.send(creation("orders", partitions=1, factor=1), 7)
            server = controllers.nodes[active].running
            # The records are in the log, but not answered, because no other node has them.
            controllers.wait_for(lambda: server.controller.deferred_count == 1)
            raft = server.shared.raft
            controllers.wait_for(lambda: raft.log.end_offset > (raft.node.high_watermark or 0) + 1)
            assert "orders" not in image(controllers, active).topics.by_name
            controllers.open(others[0])
            answer = client.receive()
            assert answer is not None
            assert isinstance(answer.message, CreateTopicsResponse)
            assert answer.message.topics[0].error_code == 0
        wait_for_topics(controllers, "orders")


def test_a_leader_without_a_majority_gives_up(tmp_path: Path) -> None:
    with Controllers(tmp_path, 3, settings={"controller.quorum.fetch.timeout.ms": "1500"}) as controllers:
        active = controllers.active_id()
        others = [node_id for node_id in controllers.nodes if node_id != active]
        with controllers.client(active) as client:
            register_broker(client, 7)
            controllers.wait_for(lambda: len(controllers.nodes[others[0]].running.shared.image.cluster.brokers) == 1)
            controllers.wait_for(lambda: len(controllers.nodes[others[1]].running.shared.image.cluster.brokers) == 1)
            for node_id in others:
                controllers.stop(node_id, cleanly=False)
            answer = ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse)
            assert error_name(answer.topics[0].error_code) == "NOT_CONTROLLER"
            assert not controllers.nodes[active].running.is_active
            # It has forgotten the records that it had received but not committed.
            parts = controllers.nodes[active].running.controller.controller.parts
            assert controllers.thread.call(lambda: "orders" in {topic.name for topic in parts.state.topics.values()}) is False


def test_a_snapshot_is_written_and_started_from(tmp_path: Path) -> None:
    settings = {"metadata.log.max.record.bytes.between.snapshots": "4000", "metadata.max.idle.interval.ms": "0"}
    with Controllers(tmp_path, settings=settings) as controllers:
        controllers.active_id()
        directory = tmp_path / "node-1" / METADATA_DIR
        with controllers.client(1) as client:
            epoch = register_broker(client, 7)
            for number in range(30):
                assert ask(client, creation(f"topic-{number}", partitions=2, factor=1), CreateTopicsResponse).topics[0].error_code == 0
        raft = controllers.nodes[1].running.shared.raft
        controllers.wait_for(lambda: raft.log.latest_snapshot_id is not None and raft.log.latest_snapshot_id.offset > 0)
        before = image(controllers, 1)
        controllers.stop(1)
        assert [path.stat().st_mode & 0o777 for path in directory.glob("*.checkpoint")][-1] == 0o400
        assert not list(directory.glob("*.part"))
        controllers.open(1)
        controllers.active_id()
        after = image(controllers, 1)
        assert after.topics.by_name == before.topics.by_name
        assert after.cluster.brokers[7].epoch == epoch
        assert after.features == before.features


def test_controllers_register(tmp_path: Path) -> None:
    with Controllers(tmp_path, 3) as controllers:
        active = controllers.active_id()
        nodes = controllers.nodes.values()
        controllers.wait_for(lambda: all(len(node.running.shared.image.cluster.controllers) == 3 for node in nodes))
        with controllers.client(2) as client:
            told = ask(client, DescribeClusterRequest(endpoint_type=2), DescribeClusterResponse)
            assert (told.cluster_id, told.controller_id, told.endpoint_type) == (CLUSTER_ID, active, 2)
            assert {node.broker_id: (node.host, node.port) for node in told.brokers} == {
                node_id: ("127.0.0.1", port) for node_id, port in controllers.ports.items()
            }
            wrong = ask(client, DescribeClusterRequest(endpoint_type=1), DescribeClusterResponse)
            assert error_name(wrong.error_code) == "MISMATCHED_ENDPOINT_TYPE"
            features = ask(client, ApiVersionsRequest("tests", "1"), ApiVersionsResponse)
            assert {one.name: one.max_version_level for one in features.finalized_features} == {
                "eligible.leader.replicas.version": 1,
                "group.version": 1,
                "kraft.version": 1,
                "metadata.version": 30,
                "share.version": 1,
                "streams.version": 1,
                "transaction.version": 2,
            }
            assert features.finalized_features_epoch > 0


def test_forwarded_requests(tmp_path: Path) -> None:
    """Brokers forward requests of clients in envelopes. A node that does not lead says so with the envelope's own code."""
    with Controllers(tmp_path, 2) as controllers:
        active = controllers.active_id()
        with controllers.client(active) as client:
            register_broker(client, 7)
        for node_id in controllers.nodes:
            for asked in (creation("orders", partitions=1, factor=1), describe_quorum()):
                api = BY_NAME[type(asked).__name__.removesuffix("Request")]
                inner = Request(api, asked.VERSIONS[-1], asked.VERSIONS[-1], 99, "a client", asked, 0)
                with controllers.client(node_id) as client:
                    answer = ask(client, envelope(inner, asked, "User:ANONYMOUS", "10.0.0.1"), EnvelopeResponse)
                if node_id != active:
                    assert (error_name(answer.error_code), answer.response_data) == ("NOT_CONTROLLER", None)
                    continue
                response = read_response(inner, answer.response_data)
                if isinstance(response, CreateTopicsResponse):
                    assert response.topics[0].error_code == 0
                else:
                    assert isinstance(response, DescribeQuorumResponse)
                    assert response.topics[0].partitions[0].leader_id == active
        with controllers.client(active) as client:
            inner = Request(BY_NAME["ApiVersions"], 4, 4, 1, "a client", ApiVersionsRequest("tests", "1"), 0)
            refused = ask(client, envelope(inner, inner.message, "User:ANONYMOUS", "10.0.0.1"), EnvelopeResponse)
            assert error_name(refused.error_code) == "INVALID_REQUEST"


def test_the_quorum_changes(tmp_path: Path) -> None:
    """A node that follows becomes a voter, and the first one leaves. The second one then leads, and knows everything."""
    with Controllers(tmp_path) as controllers:
        controllers.active_id()
        with controllers.client(1) as client:
            register_broker(client, 7)
            assert ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse).topics[0].error_code == 0
        controllers.add(tmp_path, 2)
        wait_for_topics(controllers, "orders")
        # The leader knows that the node has caught up when it fetches from the log's end. By then it has the topic on its disk.
        leader = controllers.nodes[1].running.shared.raft.node.state
        assert isinstance(leader, LeaderState)
        controllers.wait_for(lambda: any(observer.last_caught_up_ms > 0 for observer in leader.observers.values()))
        ids = {id: uuid_bytes(node.running.shared.directories.directory_id) for id, node in controllers.nodes.items()}
        listener = add_raft_voter_request.Listener("CONTROLLER", "127.0.0.1", controllers.ports[2])
        with controllers.client(1) as client:
            added = ask(client, AddRaftVoterRequest(CLUSTER_ID, 60_000, 2, ids[2], [listener]), AddRaftVoterResponse)
            assert (added.error_code, added.error_message) == (0, None)
            told = ask(client, describe_quorum(), DescribeQuorumResponse).topics[0].partitions[0]
            assert ([voter.replica_id for voter in told.current_voters], told.observers) == ([1, 2], [])
            removed = ask(client, RemoveRaftVoterRequest(CLUSTER_ID, 1, ids[1]), RemoveRaftVoterResponse)
            assert (removed.error_code, removed.error_message) == (0, None)
        controllers.wait_for(lambda: controllers.nodes[2].running.is_active)
        with controllers.client(2) as client:
            again = ask(client, creation("orders", partitions=1, factor=1), CreateTopicsResponse)
            assert error_name(again.topics[0].error_code) == "TOPIC_ALREADY_EXISTS"
            told = ask(client, describe_quorum(), DescribeQuorumResponse).topics[0].partitions[0]
            assert [voter.replica_id for voter in told.current_voters] == [2]


def test_a_disk_that_fails_ends_the_node(tmp_path: Path) -> None:
    """The error of a failed sync comes out of the loop."""
    with Controllers(tmp_path, start=False) as controllers:
        config = controllers.nodes[1].config
    files = FaultyFiles(OsFiles(), error=errno.EIO)
    loop = Loop()
    server = ControllerServer(SharedServer(loop, config, files))
    server.start()

    def fail() -> None:
        if server.is_active:
            files.at = len(files.operations) + 2  # a write, then the sync
        else:
            loop.call_soon(fail)

    fail()
    with pytest.raises(KafkaStorageError, match="Error while flushing log for __cluster_metadata-0"):
        loop.run()
    server.close()
    server.shared.abandon()
    loop.close()
