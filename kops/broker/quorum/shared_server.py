"""The parts shared by the broker and the controller of one process: the node's directories, its Raft node, the metadata and its snapshots.

Source: Kafka's SharedServer and KafkaRaftServer. It serves a broker, a controller or both. The first user starts it: the controller if
there is one, because the quorum has to know its addresses. The last user stops it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kops.broker.quorum.committed_records import CommittedRecords, MetadataReader
from kops.broker.quorum.draws import RandomDraws
from kops.broker.quorum.metadata_directory import NodeDirectories, open_directories
from kops.broker.quorum.node_settings import metadata_log_settings, raft_identity
from kops.broker.quorum.raft_manager import RaftManager
from kops.broker.quorum.snapshot_generator import SnapshotGenerator
from kops.metadata.image.known_configs import is_known
from kops.metadata.image.loader import MetadataLoader
from kops.metadata.raft.voters.replica import NO_ENDPOINTS, Endpoints

if TYPE_CHECKING:
    from collections.abc import Callable

    from kops.broker.network.events.loop import Loop
    from kops.config import BrokerConfig
    from kops.errors import DecodeError
    from kops.files import Files
    from kops.metadata.controller.cluster.settings import Draws
    from kops.metadata.image.loader import Publisher
    from kops.metadata.image.metadata_image import MetadataImage

log = logging.getLogger(__name__)

_RAFT_SHUTDOWN_TIMEOUT_MS: Final = 5_000


class SharedServer:
    """The constructor checks the directories (StartRefusedError, DecodeError, OSError). `start` locks them and loads the metadata log.

    If the metadata directory is one of a broker's, the broker's LogManager holds the lock. All methods are for the loop's thread.
    """

    def __init__(self, loop: Loop, config: BrokerConfig, files: Files, *, draws: Draws | None = None) -> None:
        self.loop = loop
        self.config = config
        self.files = files
        self.draws: Draws = RandomDraws() if draws is None else draws
        self.directories: NodeDirectories = open_directories(files, config, loop.now_ms)
        self.records = CommittedRecords()
        self.loader = MetadataLoader(self._high_watermark, self._on_fault, is_known)
        self._raft: RaftManager | None = None
        self._snapshots: SnapshotGenerator | None = None
        self._is_shutting_down = self._is_in_haste = False
        self._waiting: list[Callable[[], object]] = []

    # facts ------------------------------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str:
        """The cluster that the directories belong to."""
        return self.directories.cluster_id

    @property
    def raft(self) -> RaftManager:
        """The Raft node, from `start` on."""
        assert self._raft is not None, "the shared server is not started"
        return self._raft

    @property
    def image(self) -> MetadataImage:
        """The metadata as known here."""
        return self.loader.image

    # life -------------------------------------------------------------------------------------------------------------------------

    def start(self, endpoints: Endpoints = NO_ENDPOINTS) -> None:
        """Join the quorum. `endpoints` are the controller's. Does nothing if it has been started.

        Raises LockHeldError, LoadError, DecodeError, OSError; nothing stays open then.
        """
        if self._raft is not None:
            return
        config = self.config
        metadata_dir = config.metadata_log_dir
        identity = raft_identity(config, self.cluster_id, self.directories.directory_id, endpoints, self.draws.next_int)
        lock_directory = not config.is_broker or metadata_dir not in config.log_dirs
        self._raft = raft = RaftManager(
            self.loop,
            identity,
            self.files,
            metadata_dir,
            log_settings=metadata_log_settings(config),
            lock_directory=lock_directory,
        )
        max_bytes, interval_ms = "metadata.log.max.record.bytes.between.snapshots", "metadata.log.max.snapshot.interval.ms"
        self._snapshots = SnapshotGenerator(self.loop, raft, max_bytes=config[max_bytes], max_interval_ms=config[interval_ms])
        self.loader.install(self._snapshots)
        raft.register(MetadataReader(self.loader, self.records))
        raft.start()

    def install(self, publisher: Publisher) -> None:
        """Publish the metadata to a publisher, beginning with the current image as soon as it is known."""
        self.loader.install(publisher)
        self.loop.call_soon(self.loader.initialize_publishers)

    def remove(self, publisher: Publisher) -> None:
        """Publish nothing more to it."""
        self.loader.remove(publisher)

    def stop_raft(self, done: Callable[[], object]) -> None:
        """Leave the quorum gracefully: a leader hands over first. Nothing is committed here any more. Calls `done` once."""
        raft = self._raft
        if raft is None or raft.is_closed:
            self.loop.call_soon(done)
            return
        self._waiting.append(done)
        if not self._is_shutting_down:
            self._is_shutting_down = True
            if self._snapshots is not None:
                self._snapshots.disable("we are shutting down")
            timeout_ms = 0 if self._is_in_haste else _RAFT_SHUTDOWN_TIMEOUT_MS
            raft.shut_down(timeout_ms, lambda timed_out: self._raft_stopped(raft, timed_out))

    def hurry(self) -> None:
        """Let a current or later shutdown not wait for another leader."""
        self._is_in_haste = True
        if self._is_shutting_down and self._raft is not None and not self._raft.is_closed:
            self._raft.hurry()

    def _raft_stopped(self, raft: RaftManager, timed_out: bool) -> None:
        if timed_out and not self._is_in_haste:
            log.warning("Graceful shutdown timed out after %d ms", _RAFT_SHUTDOWN_TIMEOUT_MS)
        # The Raft node is still carrying out its actions here.
        self.loop.call_soon(lambda: self._close(raft))

    def _close(self, raft: RaftManager) -> None:
        raft.close()
        self._close_snapshots()
        waiting, self._waiting = self._waiting, []
        for done in waiting:
            done()

    def shut_down(self, done: Callable[[], object]) -> None:
        """Stop. Called when neither broker nor controller needs it any more."""
        self.stop_raft(done)

    def abandon(self) -> None:
        """Close everything at once, as the end of a process does, without notice to other nodes and without a handover."""
        if self._raft is not None:
            self._raft.close(cleanly=False)
            self._close_snapshots()

    def _close_snapshots(self) -> None:
        if self._snapshots is not None and self.join_side_work(0):
            self._snapshots.close()

    def end_side_work(self) -> None:
        """Start no more work in side threads. Called before an abrupt end, so that `join_side_work` can wait for the rest."""
        if self._raft is not None:
            self._raft.side_work.end()

    def join_side_work(self, timeout_s: float | None = None) -> bool:
        """Wait until no side thread works on the metadata log. Returns whether this came in time."""
        return self._raft is None or self._raft.side_work.join(timeout_s)

    # for the loader ---------------------------------------------------------------------------------------------------------------

    def _high_watermark(self) -> int | None:
        return None if self._raft is None else self._raft.node.high_watermark

    def _on_fault(self, what: str, error: DecodeError) -> None:
        """A record contradicts the metadata. A controller ends; a broker continues without the record, but writes no more snapshots."""
        if self.config.is_controller:
            raise error
        log.error("%s: %s", what, error)
        if self._snapshots is not None:
            self._snapshots.disable("metadata loading fault")
