"""Around the metadata log: writing snapshots, informing publishers, sending registrations, reading settings, reading and formatting
directories.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from kops.broker.controller.registration import ControllerRegistrationManager
from kops.broker.network.settings import ListenerSettings, NetworkSettings
from kops.broker.quorum.committed_records import CommittedRecords, MetadataReader, snapshot_provenance, snapshot_records
from kops.broker.quorum.format import FormatError, FormatOptions, format_node
from kops.broker.quorum.metadata_directory import open_directories
from kops.broker.quorum.node_settings import controller_settings, metadata_log_settings, network_settings, quorum_settings, raft_identity
from kops.broker.quorum.raft_log import MetadataLogSettings
from kops.broker.quorum.snapshot_generator import SnapshotGenerator
from kops.config import BrokerConfig
from kops.errors import ApiError, DecodeError
from kops.files import FaultyFiles, MemoryFiles
from kops.metadata.broker_registration import Endpoint
from kops.metadata.controller.cluster.feature_versions import bootstrap_records
from kops.metadata.image.batch_loader import Manifest
from kops.metadata.image.loader import MetadataLoader
from kops.metadata.image.metadata_delta import MetadataDelta
from kops.metadata.image.metadata_image import EMPTY, MetadataImage, MetadataProvenance
from kops.metadata.metadata_version import LATEST_PRODUCTION
from kops.metadata.raft.log.snapshot import SnapshotWriter
from kops.metadata.raft.voters.replica import NO_ENDPOINTS, Node, OffsetAndEpoch
from kops.metadata.raft.voters.settings import QuorumSettings
from kops.metadata.records import write_record
from kops.protocol.api_keys import Listener
from kops.protocol.declaration import Message
from kops.protocol.messages import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    FeatureLevelRecord,
    RegisterControllerRecord,
    TopicRecord,
)
from kops.records import BatchBuilder, read_batches
from kops.storage.background.work import EndedError, SideWork
from kops.storage.failures.load_errors import LoadError
from kops.storage.formats.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kops.storage.start.log_dirs import StartRefusedError
from tests.support.parts.manual_loop import ManualLoop

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
VOTERS = "1@localhost:9093:JEXY6aqzQY-32P5TStzaFg"
LATEST = FeatureLevelRecord("metadata.version", LATEST_PRODUCTION.level)


def config(**more: str) -> BrokerConfig:
    """Return the settings of a combined controller and broker. `_` in a name stands for a dot."""
    values = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094",
        "log.dirs": "/a,/b",
    }
    return BrokerConfig.from_properties(values | {name.replace("_", "."): value for name, value in more.items()})


def image_of(*records: Message, offset: int = 9, aligned: bool = True) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(EMPTY)
    for record in records:
        delta.replay(record)
    return delta, delta.apply(MetadataProvenance(offset, 3, 77, aligned))


# snapshots -----------------------------------------------------------------------------------------------------------------------------


class ThreadlessLoop(ManualLoop):
    """A loop whose side threads do their work at once and report it a turn later."""

    def in_thread(self, work: Callable[[], Any], done: Callable[[Future[Any]], object]) -> None:
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except OSError as error:
            future.set_exception(error)
        self.call_soon(lambda: done(future))


class Sink:
    """A snapshot in memory that can be read."""

    def __init__(self, snapshot_id: OffsetAndEpoch, error: OSError | None = None) -> None:
        self.snapshot_id = snapshot_id
        self.data = bytearray()
        self.is_settled = self.is_frozen = self.is_closed = False
        self.error = error

    @property
    def size(self) -> int:
        return len(self.data)

    def append(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        assert not self.is_settled
        self.data += data

    def settle(self) -> None:
        self.is_settled = True

    def freeze(self) -> None:
        assert self.is_settled
        self.is_frozen = True

    def close(self) -> None:
        self.is_closed = True

    def read(self, position: int, max_size: int) -> bytes:
        return bytes(self.data[position : position + max_size])


class SnapshotBench:
    """A generator over a Raft node that the test simulates."""

    def __init__(self, *, max_bytes: int = 1000, max_interval_ms: int = 0) -> None:
        self.loop = ThreadlessLoop()
        self.side_work = SideWork(self.loop.in_thread)
        self.sinks: list[Sink] = []
        self.is_closed = self.has_it = False
        self.error: OSError | None = None
        self.refusal: LoadError | None = None
        self.generator = SnapshotGenerator(self.loop, self, max_bytes=max_bytes, max_interval_ms=max_interval_ms)  # type: ignore[arg-type]

    def create_snapshot(self, snapshot_id: OffsetAndEpoch, time_ms: int) -> SnapshotWriter | None:
        if self.refusal is not None:
            raise self.refusal
        if self.has_it:
            return None
        self.sinks.append(Sink(snapshot_id, self.error))
        return SnapshotWriter(self.sinks[-1], time_ms, 0, None, 0)

    def publish(self, size: int, *, is_snapshot: bool = False, aligned: bool = True) -> None:
        delta, image = image_of(LATEST, TopicRecord("orders", bytes(15) + b"\x77"), aligned=aligned)
        self.generator.on_metadata_update(delta, image, Manifest(image.provenance, 1, size, is_snapshot))


def test_a_snapshot_after_so_many_bytes() -> None:
    bench = SnapshotBench()
    bench.publish(600)
    bench.publish(300)
    assert bench.sinks == []
    bench.publish(100)
    (sink,) = bench.sinks
    assert (sink.snapshot_id, sink.is_frozen) == (OffsetAndEpoch(offset=10, epoch=3), False)
    assert sink.is_settled, "the thread waits for the disk, not the loop"
    bench.publish(2000)
    assert len(bench.sinks) == 1, "one at a time"
    bench.loop.advance()
    assert sink.is_frozen
    assert snapshot_provenance(sink) == MetadataProvenance(9, 3, 77, is_offset_batch_aligned=True)
    assert [type(record).__name__ for record in snapshot_records(sink)] == ["FeatureLevelRecord", "TopicRecord"]
    # The bytes that came meanwhile count for the next snapshot.
    bench.publish(0)
    assert len(bench.sinks) == 2


def test_a_snapshot_after_some_time() -> None:
    bench = SnapshotBench(max_interval_ms=60_000)
    bench.loop.advance(59_999)
    bench.publish(1)
    assert bench.sinks == []
    bench.loop.advance(1)
    bench.publish(1)
    assert len(bench.sinks) == 1
    bench.loop.advance(60_000)
    bench.publish(5000, is_snapshot=True)
    bench.publish(1)
    assert len(bench.sinks) == 1, "one that was read counts, too"


def test_no_snapshot(caplog: pytest.LogCaptureFixture) -> None:
    bench = SnapshotBench()
    bench.publish(2000, aligned=False)
    bench.has_it = True
    bench.publish(2000)
    bench.has_it = False
    bench.refusal = LoadError("not batch aligned", exception="java.lang.IllegalArgumentException")
    bench.publish(2000)
    bench.refusal = None
    bench.generator.disable("metadata loading fault")
    bench.generator.disable("we are shutting down")
    bench.publish(2000)
    assert bench.sinks == []
    assert [record.levelno for record in caplog.records] == [logging.ERROR] * 3
    assert "metadata loading fault" in caplog.records[-1].message


@pytest.mark.parametrize("why", ["disk", "closed"])
def test_an_unfinished_snapshot_is_dropped(why: str) -> None:
    bench = SnapshotBench()
    bench.error = OSError(28, "No space left on device") if why == "disk" else None
    bench.publish(2000)
    bench.is_closed = why == "closed"
    # All its records are in memory until it ends, so a full disk shows only then.
    bench.loop.advance()
    (sink,) = bench.sinks
    assert (sink.is_frozen, sink.is_closed) == (False, True)


def test_a_snapshot_that_no_thread_has_begun_is_dropped_with_the_node() -> None:
    bench = SnapshotBench()
    waiting: list[Callable[[], Any]] = []
    bench.loop.in_thread = lambda work, done: waiting.append(work)  # type: ignore[method-assign]
    bench.side_work = SideWork(bench.loop.in_thread)
    bench.publish(2000)
    (sink,) = bench.sinks
    bench.side_work.end()
    with pytest.raises(EndedError):
        waiting[0]()
    assert not sink.is_closed
    bench.generator.close()
    assert (sink.is_settled, sink.is_closed) == (False, True)


# reading -------------------------------------------------------------------------------------------------------------------------------


def test_publishers_are_told_as_soon_as_the_log_is_read() -> None:
    told: list[int] = []

    class Listening:
        def on_metadata_update(self, delta: MetadataDelta, image: MetadataImage, manifest: Manifest) -> None:
            told.append(image.offset)

    def fault(what: str, error: DecodeError) -> None:
        raise error

    loader = MetadataLoader(lambda: 4, fault)
    records = CommittedRecords()
    reader = MetadataReader(loader, records)
    loader.install(Listening())
    data = b""
    for offset in (0, 2):
        builder = BatchBuilder(base_offset=offset, partition_leader_epoch=1)
        builder.append(0, None, write_record(LATEST, 0))
        builder.append(0, None, write_record(TopicRecord(f"t{offset}", bytes(15) + bytes([0x60 + offset])), 0))
        data += builder.build()
    first, second = read_batches(data)
    reader.on_committed([first])
    assert told == []
    batches = [second]
    reader.on_committed(batches)
    assert told == [3]
    assert records.of(batches) is records.of(batches)
    assert records.of([first]) == records.of([first])


# the controller's registration ------------------------------------------------------------------------------------------------------------


class Channel:
    """The channel to the active controller."""

    def __init__(self) -> None:
        self.sent: list[tuple[ControllerRegistrationRequest, Callable[[Message | ApiError], object]]] = []

    def send(self, message: Message, done: Callable[[Message | ApiError], object], *, timeout_ms: int | None = None) -> None:
        assert isinstance(message, ControllerRegistrationRequest)
        self.sent.append((message, done))


def registered(incarnation: int) -> tuple[MetadataDelta, MetadataImage]:
    return image_of(LATEST, RegisterControllerRecord(1, bytes(15) + bytes([incarnation])))


def test_a_controller_registers_until_the_metadata_says_so() -> None:
    loop, channel = ManualLoop(), Channel()
    endpoint = Endpoint("CONTROLLER", "localhost", 9093)
    manager = ControllerRegistrationManager(loop, channel, 1, bytes(15) + b"\x07", {"CONTROLLER": endpoint}, draw=lambda: 0.5)

    def publish(delta: MetadataDelta, image: MetadataImage) -> None:
        manager.on_metadata_update(delta, image, Manifest(image.provenance))

    publish(*image_of(FeatureLevelRecord("metadata.version", 14)))
    assert channel.sent == [], "that version knows no registrations"
    publish(*registered(6))
    publish(*registered(6))
    ((request, done),) = channel.sent
    assert (request.controller_id, request.incarnation_id[-1], request.listeners[0].port) == (1, 7, 9093)
    done(ApiError("REQUEST_TIMED_OUT"))
    loop.advance(99)
    assert len(channel.sent) == 1
    loop.advance(1)
    channel.sent[1][1](ControllerRegistrationResponse(error_code=41))
    loop.advance(200)
    assert len(channel.sent) == 3
    channel.sent[2][1](ControllerRegistrationResponse())
    loop.advance(10_000)
    assert (len(channel.sent), manager.is_registered) == (3, False)
    publish(*registered(7))
    assert manager.is_registered
    # Another process with this id has taken its place.
    publish(*registered(8))
    assert (len(channel.sent), manager.is_registered) == (4, False)
    manager.close()
    channel.sent[3][1](ApiError("NETWORK_EXCEPTION"))
    assert loop.timer_count == 0


# settings ------------------------------------------------------------------------------------------------------------------------------


def test_settings_without_any_are_kafkas() -> None:
    given = config()
    assert quorum_settings(given) == QuorumSettings()
    assert metadata_log_settings(given) == MetadataLogSettings()
    listener = ListenerSettings("CONTROLLER", "127.0.0.1", 9093, Listener.CONTROLLER, advertised_host="127.0.0.1", advertised_port=9093)
    assert network_settings(given, Listener.CONTROLLER) == NetworkSettings(listeners=(listener,))
    broker = network_settings(given, Listener.BROKER)
    assert ([one.name for one in broker.listeners], broker.inter_broker_listener_name) == (["PLAINTEXT"], "PLAINTEXT")
    controller = controller_settings(given, CLUSTER_ID, ())
    assert (controller.session_timeout_ms, controller.max_idle_interval_ms, controller.leader_imbalance_check_interval_ms) == (
        9_000,
        500,
        300_000,
    )


def test_settings_that_mean_never_or_one_listener() -> None:
    given = config(
        metadata_max_idle_interval_ms="0",
        auto_leader_rebalance_enable="false",
        listener_name_controller_max_connections="5",
        internal_metadata_log_segment_bytes="4096",
    )
    controller = controller_settings(given, CLUSTER_ID, ())
    assert (controller.max_idle_interval_ms, controller.leader_imbalance_check_interval_ms) == (None, None)
    assert [one.max_connections for one in network_settings(given, Listener.CONTROLLER).listeners] == [5]
    assert metadata_log_settings(given).internal_segment_bytes == 4096


def test_who_a_node_is_in_the_quorum() -> None:
    dynamic = raft_identity(config(), CLUSTER_ID, "JEXY6aqzQY-32P5TStzaFg", NO_ENDPOINTS, lambda count: 0)
    assert (dynamic.node_id, dynamic.can_become_voter, len(dynamic.static_voters)) == (1, True, 0)
    assert dynamic.bootstrap == [Node(-2, "127.0.0.1", 9093), Node(-3, "127.0.0.1", 9094)]
    given = config(controller_quorum_bootstrap_servers="", controller_quorum_voters="1@localhost:9093,2@localhost:9094")
    static = raft_identity(given, CLUSTER_ID, "JEXY6aqzQY-32P5TStzaFg", NO_ENDPOINTS, lambda count: 0)
    assert static.bootstrap == [Node(1, "localhost", 9093), Node(2, "localhost", 9094)]
    assert static.static_voters.ids == {1, 2}


# directories ---------------------------------------------------------------------------------------------------------------------------


def formatted(**more: str) -> tuple[MemoryFiles, BrokerConfig]:
    files, given = MemoryFiles(), config(**more)
    format_node(files, given, FormatOptions(CLUSTER_ID, initial_controllers=VOTERS), now_ms=5)
    return files, given


def test_formatted_directories_are_opened() -> None:
    files, given = formatted()
    opened = open_directories(files, given, lambda: 6)
    assert (opened.cluster_id, opened.directory_id) == (CLUSTER_ID, "JEXY6aqzQY-32P5TStzaFg")
    assert [start.path for start in opened.starts] == ["/a", "/b"]
    assert opened.bootstrap == bootstrap_records(LATEST_PRODUCTION)
    ids = {start.meta.directory_id for start in opened.starts if start.meta is not None}
    assert len(ids) == 2
    again = format_node(files, given, FormatOptions(CLUSTER_ID, ignore_formatted=True, no_initial_controllers=True), now_ms=7)
    assert again == ["All of the log directories are already formatted."]


def test_a_directory_without_an_id_gets_one() -> None:
    files, given = formatted()
    files.write_all("/b/meta.properties", write_meta_properties(MetaProperties(1, CLUSTER_ID, 1), date=0))
    files.unlink("/a/bootstrap.checkpoint")
    opened = open_directories(files, given, lambda: 6)
    assert opened.bootstrap == bootstrap_records(LATEST_PRODUCTION)
    (meta,) = [start.meta for start in opened.starts if start.path == "/b"]
    assert meta is not None
    assert meta.directory_id is not None
    assert read_meta_properties(files.read_all("/b/meta.properties")).directory_id == meta.directory_id


def test_directories_of_another_node_are_refused() -> None:
    files, _ = formatted()
    other = config(node_id="2")
    with pytest.raises(StartRefusedError, match="Stored node id 1 doesn't match previous node id 2"):
        open_directories(files, other, lambda: 6)
    with pytest.raises(FormatError, match="Stored node id 1 doesn't match previous node id 2"):
        format_node(files, other, FormatOptions(CLUSTER_ID, no_initial_controllers=True), now_ms=5)
    with pytest.raises(FormatError, match=r"Invalid cluster\.id in: /a/meta\.properties"):
        format_node(files, config(), FormatOptions("another", no_initial_controllers=True), now_ms=5)


def test_formatting_that_is_cut_off_is_begun_again() -> None:
    """A directory counts as formatted only when it has its meta.properties, the last of its files, whatever was written before."""
    counting = FaultyFiles(MemoryFiles())
    options = FormatOptions(CLUSTER_ID, initial_controllers=VOTERS, ignore_formatted=True)
    format_node(counting, config(), options, now_ms=5)
    count = len(counting.operations)
    assert count > 10
    for at in range(1, count + 1):
        base = MemoryFiles()
        with pytest.raises(OSError, match="No space"):
            format_node(FaultyFiles(base, at=at, error=28), config(), options, now_ms=5)
        format_node(base, config(), options, now_ms=5)
        assert open_directories(base, config(), lambda: 6).cluster_id == CLUSTER_ID
