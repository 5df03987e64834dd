"""A cluster inside this process, for tests of programs that talk to Kafka: all nodes on one loop in one background thread.

    with kops.Cluster(brokers=3) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

The nodes and their directory are those of `kops cluster up`: if a cluster has a `data_dir`, that command can start it
afterwards, and so can Apache Kafka.
"""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import tempfile
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from kops.broker.life.node import Node
from kops.broker.network.acceptor import BindError
from kops.broker.network.events.loop import Loop
from kops.cluster.launch import change_settings, format_nodes, supervision
from kops.cluster.layout import ports, settings
from kops.cluster.layout.directory import ClusterDirectory, Undo, check_nodes, check_usable, follow_a_move
from kops.cluster.questions import active_controller, create_topics
from kops.config import BrokerConfig
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

# Without logging set up, a program sees no output of a cluster. Otherwise it sees the loggers below `kops`.
logging.getLogger("kops").addHandler(logging.NullHandler())

Result = TypeVar("Result")
_TRIES: Final = 5
_BROKERS: Final = 3
_LOOK_MS: Final = 5
_LOOKS: Final = 1_000  # A broker that reads no metadata delays `create_topic` by five seconds.


class LoopThread:
    """A loop in a background thread, and calls into it from other threads. `fault` is the error that ended it."""

    def __init__(self) -> None:
        self.loop = Loop()
        self.fault: KopsError | None = None
        self._waiting: set[Future[Any]] = set()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="kops-cluster", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            with self._guard:
                self.fault = KopsError(f"the cluster has failed: {type(error).__name__}: {error}")
                for future in self._waiting:
                    settle(future, self.fault)
            raise

    def ask(self, begin: Callable[[Future[Result]], object], timeout_s: float) -> Result:
        """Call `begin(future)` on the loop and wait for the future's result. Raises KopsError if that takes too long, or the loop has
        failed.
        """
        future: Future[Result] = Future()

        def run() -> None:
            try:
                begin(future)
            except KopsError as error:
                settle(future, error)

        with self._guard:
            if self.fault is not None:
                raise self.fault
            self._waiting.add(future)
        try:
            self.loop.call_from_thread(run)
            return future.result(timeout_s)
        except TimeoutError:
            raise KopsError(f"the cluster did not answer within {timeout_s:g} s") from None
        finally:
            with self._guard:
                self._waiting.discard(future)

    def stop(self) -> None:
        """End the thread and close the loop."""
        if self._thread.is_alive():
            self.loop.call_from_thread(self.loop.stop)
            self._thread.join()
        self.loop.close()


def settle(future: Future[Any], error: BaseException | None) -> None:
    """Complete a future, unless it is done."""
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class Cluster:
    """A cluster of `brokers` nodes. It is ready when the `with` block is entered (or `start()` returns), and gone after the block.

    `config` are settings of all brokers with Kafka's names. `topics` are created at the start (`"orders:3:2"`: name, partitions, replicas).
    Without `data_dir`, all files are in a temporary directory that is removed at the end. A cluster that still runs when the interpreter
    ends is killed, and its temporary directory is removed. Methods may be called from any thread. With `async with`, the cluster is an
    `AsyncCluster`. Raises UsageError for invalid arguments, and KopsError.
    """

    def __init__(
        self,
        brokers: int | None = None,
        *,
        config: Mapping[str, str] | None = None,
        topics: Iterable[str] = (),
        data_dir: str | os.PathLike[str] | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        if not timeout_s > 0:
            raise UsageError(f"timeout_s {timeout_s}: allowed is a number of seconds above 0")
        self.timeout_s = timeout_s
        self._count = brokers
        self._config = settings.parse_settings([f"{key}={value}" for key, value in (config or {}).items()], source="config")
        settings.check_given(self._config, source="config")
        self._topics = [topics] if isinstance(topics, str) else list(topics)
        if brokers is not None or data_dir is None:
            self._check(len(settings.combined_ids(_BROKERS if brokers is None else brokers)))
        self._data_dir = None if data_dir is None else os.fspath(data_dir)
        self._directory: ClusterDirectory | None = None
        self._thread: LoopThread | None = None
        self._nodes: dict[int, Node] = {}
        self._failures: dict[int, str] = {}
        self._guard = threading.RLock()

    def __repr__(self) -> str:
        if self._directory is None or self._thread is None:
            return "<kops.Cluster, not running>"
        return f"<kops.Cluster at {self.bootstrap_servers} in {self.data_dir}>"

    def _check(self, count: int) -> None:
        """Raise UsageError for topics and settings with which no cluster of `count` new brokers can start."""
        settings.parse_seed_topics(self._topics, count, source="topics")
        any_port, other_port = 1, 2
        voters = [settings.Voter(1, other_port)]
        properties = settings.node_properties(1, voters, port=any_port, log_dir="data", broker_count=count, settings=self._config)
        settings.check_properties(properties, file="config")

    # facts ------------------------------------------------------------------------------------------------------------------------

    @property
    def directory(self) -> ClusterDirectory:
        """The cluster's directory. Raises KopsError before the start and after the end."""
        if self._directory is None or self._thread is None:
            raise KopsError("the cluster is not running")
        return self._directory

    @property
    def data_dir(self) -> str:
        """The path of its directory."""
        return self.directory.path

    @property
    def bootstrap_servers(self) -> str:
        """The clients' setting `bootstrap.servers`: all brokers, including stopped ones."""
        return self.directory.bootstrap_servers()

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers."""
        return self.directory.broker_ids()

    @property
    def running_ids(self) -> list[int]:
        """The ids of the running brokers."""
        return sorted(self._nodes)

    @property
    def controller_id(self) -> int | None:
        """The active controller, or None while there is none."""
        running = [
            settings.listener_address(self.directory.properties(node_id)) for node_id in self.running_ids if node_id in self.broker_ids
        ]
        return active_controller(",".join(f"{host}:{port}" for host, port in running)) if running else None

    def address(self, broker_id: int) -> str:
        """Return host and port of a broker. Raises NotFoundError."""
        self.directory.require_node(broker_id)
        host, port = settings.listener_address(self.directory.properties(broker_id))
        return f"{host}:{port}"

    # life -------------------------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Create or open the directory, start all brokers, and wait until they serve. A failed start leaves nothing behind."""
        with self._guard:
            if self._thread is not None:
                raise KopsError("the cluster is already running")
            for tries_left in reversed(range(_TRIES)):
                try:
                    self._begin()
                    break
                except KopsError as error:
                    # A port that was free when it was chosen may be taken by now.
                    if self._data_dir is not None or not tries_left or not _is_about_a_port(error):
                        raise
            # When the interpreter exits, it is too late for a clean stop, but nothing may be left behind.
            atexit.register(self.kill)
        return self

    def _begin(self) -> None:
        with Undo() as undo:
            self._directory = directory = self._prepare(undo)
            seeds = settings.parse_seed_topics(self._topics, len(directory.broker_ids()), source="topics")
            self._thread = LoopThread()
            try:
                self._start_nodes(directory.node_ids())
                if seeds:
                    self._create_topics(directory.bootstrap_servers(), seeds)
            except BaseException:
                self._end(kill=True)
                raise
            undo.keep()

    def _prepare(self, undo: Undo) -> ClusterDirectory:
        if self._data_dir is None:
            path = tempfile.mkdtemp(prefix="kops-")
            undo.made(path)
        else:
            path = self._data_dir
        directory = ClusterDirectory(path)
        if directory.is_cluster:
            if supervision(directory) is not None:
                raise KopsError(f"{directory.path} is up (kops cluster down)")
            if self._count not in (None, len(directory.node_ids())):
                raise UsageError(f"{directory.path} has {len(directory.node_ids())} brokers, not {self._count}")
            follow_a_move(directory)
            if self._config:
                change_settings(directory, self._config, source="config")
        else:
            check_usable(directory)
            undo.making([directory.path])
            os.makedirs(directory.path, exist_ok=True)
            self._write_properties(directory, undo)
        for node_id in directory.node_ids():
            settings.check_properties(directory.properties(node_id), file=directory.properties_path(node_id))
        format_nodes(directory, check_nodes(directory), undo)
        return directory

    def _write_properties(self, directory: ClusterDirectory, undo: Undo) -> None:
        node_ids = settings.combined_ids(_BROKERS if self._count is None else self._count)
        free = ports.free_ports(2 * len(node_ids))
        voters = [settings.Voter(node_id, free.pop()) for node_id in node_ids]
        for node_id in node_ids:
            properties = settings.node_properties(
                node_id, voters, port=free.pop(), log_dir=directory.log_dir(node_id), broker_count=len(node_ids), settings=self._config
            )
            settings.check_properties(properties, file="config")
            undo.making([directory.properties_path(node_id), directory.log_dir(node_id)])
            directory.write_properties(node_id, properties)

    def stop(self) -> None:
        """Stop all brokers, cleanly if the directory stays. A temporary directory is removed. A second call does nothing."""
        with self._guard:
            if self._thread is not None:
                self._end(kill=self._data_dir is None)

    def kill(self) -> None:
        """Kill everything as `kill -9` does. A `data_dir` stays as a crash would leave it."""
        with self._guard:
            if self._thread is not None:
                self._end(kill=True)

    def _end(self, *, kill: bool) -> None:
        thread = self._thread
        assert thread is not None
        atexit.unregister(self.kill)
        try:
            self._stop_nodes(list(self._nodes), kill=kill)
        finally:
            if thread.fault is not None:
                self._bury()
            self._thread = None
            thread.stop()
            if self._data_dir is None and self._directory is not None:
                shutil.rmtree(self._directory.path, ignore_errors=True)

    def _bury(self) -> None:
        """Close the nodes' files and sockets after the loop has failed and its thread has ended."""
        for node in self._nodes.values():
            node.kill()
        self._nodes.clear()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncCluster:
        cluster = AsyncCluster(self)
        await cluster.start()
        return cluster

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await AsyncCluster(self).stop()

    # brokers ----------------------------------------------------------------------------------------------------------------------

    def stop_broker(self, broker_id: int) -> None:
        """Stop a broker cleanly, after it has handed over its leaderships. Raises KopsError if it is not running."""
        self._stop_running(broker_id, kill=False)

    def kill_broker(self, broker_id: int) -> None:
        """Kill a broker as `kill -9` does. Raises KopsError if it is not running."""
        self._stop_running(broker_id, kill=True)

    def _stop_running(self, broker_id: int, *, kill: bool) -> None:
        with self._guard:
            self._require(broker_id, running=True)
            self._stop_nodes([broker_id], kill=kill)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped or killed, and wait until it serves. Raises KopsError if it is running."""
        with self._guard:
            self._require(broker_id, running=False)
            self._start_nodes([broker_id])

    def _require(self, broker_id: int, *, running: bool) -> None:
        self.directory.require_node(broker_id)
        if (broker_id in self._nodes) != running:
            reason = f": {self._failures[broker_id]}" if broker_id in self._failures else ""
            raise KopsError(f"broker {broker_id} {'is not running' + reason if running else 'is running'}")

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, *, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic, with up to 3 replicas by default, and wait until all running brokers know it. An existing topic does not change.
        Raises ApiError."""
        copies = min(len(self.broker_ids), 3) if replication_factor is None else replication_factor
        self._create_topics(self.bootstrap_servers, [settings.SeedTopic(name, partitions, copies)], config)

    def _create_topics(self, bootstrap_servers: str, topics: Sequence[settings.SeedTopic], config: Mapping[str, str] | None = None) -> None:
        """Create topics. A program that asks another broker next finds them there, as long as that one reads the metadata."""
        create_topics(bootstrap_servers, topics, config)
        assert self._thread is not None
        loop = self._thread.loop

        def look(future: Future[None], times: int) -> None:
            caches = [node.broker.parts.cache for node in self._nodes.values() if node.broker is not None]
            if times == 0 or all(cache.partition_count(topic.name) for cache in caches for topic in topics):
                settle(future, None)
            else:
                loop.call_later(_LOOK_MS, partial(look, future, times - 1))

        self._thread.ask(lambda future: look(future, _LOOKS), self.timeout_s)

    def _start_nodes(self, node_ids: Iterable[int]) -> None:
        assert self._thread is not None
        loop = self._thread.loop
        made = {node_id: Node(loop, BrokerConfig.from_properties(self.directory.properties(node_id))) for node_id in node_ids}
        left = set(made)

        def begin(future: Future[None]) -> None:
            def ready(node_id: int) -> None:
                left.discard(node_id)
                if not left:
                    settle(future, None)

            def failed(node_id: int, reason: str) -> None:
                self._nodes.pop(node_id, None)
                self._failures[node_id] = reason
                settle(future, KopsError(f"broker {node_id} has failed: {reason}"))

            for node_id, node in made.items():
                self._nodes[node_id] = node
                self._failures.pop(node_id, None)
                node.on_ready = partial(ready, node_id)
                node.on_failed = partial(failed, node_id)
            for node_id, node in made.items():
                try:
                    node.start()
                except KopsError:
                    del self._nodes[node_id]
                    raise

        try:
            self._thread.ask(begin, self.timeout_s)
        except BaseException:
            self._stop_nodes([node_id for node_id in made if node_id in self._nodes], kill=True)
            raise

    def _stop_nodes(self, node_ids: Iterable[int], *, kill: bool) -> None:
        assert self._thread is not None
        left = set(node_ids)
        voters = self.directory.voter_ids()

        def begin(future: Future[None]) -> None:
            def ended(node_id: int) -> None:
                left.discard(node_id)
                self._nodes.pop(node_id, None)
                if not left:
                    settle(future, None)
                elif 2 * len(self._nodes.keys() & set(voters)) <= len(voters):
                    for other in left:
                        self._nodes[other].hurry()

            for node_id in sorted(left):
                node = self._nodes[node_id]
                if kill:
                    node.kill()
                    ended(node_id)
                else:
                    node.shut_down(partial(ended, node_id))

        if left:
            self._thread.ask(begin, self.timeout_s)


def _is_about_a_port(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, BindError):
            return True
        error = error.__cause__
    return False


class AsyncCluster:
    """The same cluster for coroutines, which await the blocking calls. Nothing of the cluster runs on the event loop."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def __repr__(self) -> str:
        return repr(self.cluster)

    @property
    def bootstrap_servers(self) -> str:
        """The clients' setting `bootstrap.servers`."""
        return self.cluster.bootstrap_servers

    @property
    def data_dir(self) -> str:
        """The path of its directory."""
        return self.cluster.data_dir

    @property
    def broker_ids(self) -> list[int]:
        """The ids of all brokers."""
        return self.cluster.broker_ids

    @property
    def running_ids(self) -> list[int]:
        """The ids of the running brokers."""
        return self.cluster.running_ids

    def address(self, broker_id: int) -> str:
        """Return host and port of a broker. Raises NotFoundError."""
        return self.cluster.address(broker_id)

    async def controller_id(self) -> int | None:
        """The active controller, or None while there is none."""
        return await _in_thread(lambda: self.cluster.controller_id)

    async def start(self) -> Self:
        """See `Cluster.start`."""
        try:
            await _in_thread(self.cluster.start)
        except BaseException:
            # The cluster has started even though the call was cancelled.
            self.cluster.stop()
            raise
        return self

    async def stop(self) -> None:
        """See `Cluster.stop`."""
        await _in_thread(self.cluster.stop)

    async def stop_broker(self, broker_id: int) -> None:
        """See `Cluster.stop_broker`."""
        await _in_thread(lambda: self.cluster.stop_broker(broker_id))

    async def kill_broker(self, broker_id: int) -> None:
        """See `Cluster.kill_broker`."""
        await _in_thread(lambda: self.cluster.kill_broker(broker_id))

    async def start_broker(self, broker_id: int) -> None:
        """See `Cluster.start_broker`."""
        await _in_thread(lambda: self.cluster.start_broker(broker_id))

    async def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int | None = None, *, config: Mapping[str, str] | None = None
    ) -> None:
        """See `Cluster.create_topic`."""
        await _in_thread(lambda: self.cluster.create_topic(name, partitions, replication_factor, config=config))


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Run blocking work in a thread of its own. A cancelled call also waits for the end of the work."""
    import asyncio

    with ThreadPoolExecutor(1, thread_name_prefix="kops-cluster-call") as pool:
        return await asyncio.wrap_future(pool.submit(work))
