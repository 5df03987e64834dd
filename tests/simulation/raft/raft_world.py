"""A whole quorum in one deterministic run with a seed: nodes, network, disks, faults, and promises that are checked after every event.

One queue of events in virtual time determines everything. The parameters of a run (sizes, times, how much is lost, how often a node
crashes) are drawn from the seed first. Messages cross the network as bytes of their latest version. A crash may happen between two actions
or during a flush. Then data that was not durable is lost, in part or completely. At the end all faults stop, and the quorum must recover.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from kops.errors import ApiError, DecodeError
from kops.metadata.raft import RaftNode
from kops.metadata.raft.log import control_records as control
from kops.metadata.raft.log.log import BOOTSTRAP_SNAPSHOT_ID
from kops.metadata.raft.node.actions import (
    Action,
    Committed,
    Identity,
    LoadSnapshot,
    Request,
    Respond,
    SendRequest,
)
from kops.metadata.raft.node.messages import error_response
from kops.metadata.raft.roles.election import ElectionState
from kops.metadata.raft.roles.leader import LeaderState
from kops.metadata.raft.voters.replica import Address, Endpoints, Node, OffsetAndEpoch, ReplicaKey
from kops.metadata.raft.voters.settings import QuorumSettings
from kops.metadata.raft.voters.voter_set import NO_VOTERS, VoterNode, VoterSet
from kops.protocol import messages as wire
from kops.protocol.messages import add_raft_voter_request, api_versions_response
from tests.simulation.raft.raft_checks import PromiseError, Promises, fold, last_epoch, promise, snapshot_state
from tests.simulation.raft.raft_log import CrashError, MemoryLog

LISTENER = "CONTROLLER"
TOPIC, TOPIC_ID = "__cluster_metadata", bytes(15) + b"\x01"
TRACE_LENGTH = 80
QUIET_MS = 20_000
"""How long a quorum without faults may take to elect a leader and to bring every log up to date."""


@dataclass(frozen=True, slots=True)
class Parameters:
    """The parameters of a run: probabilities and times in ms. `*_every_ms` is the mean time between two such events, or 0 for none."""

    voters: int
    observers: int
    kraft_version: int
    election_timeout_ms: int
    fetch_timeout_ms: int
    request_timeout_ms: int
    linger_ms: int
    fetch_max_size: int
    snapshot_piece: int
    delay_ms: int
    slow: float
    loss: float
    duplicates: float
    auto_join: bool
    append_every_ms: int
    crash_every_ms: int
    pause_every_ms: int
    partition_every_ms: int
    snapshot_every_ms: int
    change_every_ms: int
    down_ms: int
    crash_in_flush: float
    faults_ms: int
    flush_ms: int = 0
    """How long a flush may take. With 0, it ends within the call."""

    @classmethod
    def draw(cls, rng: random.Random) -> Parameters:
        """Draw the parameters of a run. There are many kinds of runs, from calm to wild."""
        pick = rng.choice
        return cls(
            voters=pick((1, 2, 3, 3, 3, 4, 5, 5)),
            observers=pick((0, 0, 1, 2)),
            kraft_version=pick((0, 1, 1)),
            election_timeout_ms=pick((100, 300, 1000)),
            fetch_timeout_ms=pick((200, 500, 2000)),
            request_timeout_ms=pick((100, 400, 2000)),
            linger_ms=pick((0, 5, 25)),
            fetch_max_size=pick((1, 200, 1_048_576)),
            snapshot_piece=pick((50, 300, 1_048_576)),
            delay_ms=pick((1, 5, 50)),
            slow=pick((0.0, 0.02, 0.2)),
            loss=pick((0.0, 0.01, 0.1, 0.3)),
            duplicates=pick((0.0, 0.05, 0.3)),
            auto_join=pick((False, True)),
            append_every_ms=pick((5, 20, 100)),
            crash_every_ms=pick((0, 100, 300, 1000)),
            pause_every_ms=pick((0, 500, 2000)),
            partition_every_ms=pick((0, 300, 1500)),
            snapshot_every_ms=pick((0, 10, 40, 200)),
            change_every_ms=pick((0, 25, 150, 600)),
            down_ms=pick((20, 200, 1000)),
            crash_in_flush=pick((0.0, 0.3, 0.9)),
            faults_ms=pick((1500, 3000, 5000)),
        )

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


@dataclass(slots=True)
class SimulatedNode:
    """A machine with its disk (`log`, `election`) and, while it runs, a process (`raft`)."""

    key: ReplicaKey
    log: MemoryLog
    election: ElectionState | None = None
    raft: RaftNode | None = None
    life: int = 0
    paused_until_ms: int = 0
    extra_listener: bool = False
    state: int = 0
    applied: OffsetAndEpoch = BOOTSTRAP_SNAPSHOT_ID
    wake_ms: int = -1

    @property
    def name(self) -> str:
        return f"n{self.key.id}"


class SimulatedStore:
    """A node's `quorum-state`."""

    def __init__(self, world: World, node: SimulatedNode) -> None:
        self.world = world
        self.node = node

    def read(self) -> ElectionState | None:
        return self.node.election

    def write(self, election: ElectionState, data_version: int) -> None:
        node = self.node
        if node.log.flushes_before_crash == 0 and self.world.rng.random() < 0.5:
            raise CrashError
        self.world.promises.on_persist(node.key, election)
        self.world.note(f"{node.name} epoch {election.epoch} leader {election.leader_id} voted {election.voted_key} (v{data_version})")
        node.election = election


class World:
    """One run. Its parameters are drawn from the seed, except for those in `given`.

    `run()` raises PromiseError with the seed, the parameters and the last events.
    """

    def __init__(self, seed: int, **given: Any) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        # A separate source, so that runs without slow disks do not change.
        self._disk_rng = random.Random(f"disks {seed}")
        flush_ms = self._disk_rng.choice((0, 0, 0, 20, 200))
        self.parameters = replace(Parameters.draw(self.rng), **{"flush_ms": flush_ms, **given})
        self.now_ms = 1_000
        self.promises = Promises()
        self.trace: deque[str] = deque(maxlen=TRACE_LENGTH)
        self.counts: Counter[str] = Counter()
        self.nodes: dict[int, SimulatedNode] = {}
        self.cut: set[frozenset[int]] = set()
        self.is_quiet = False
        self.events = 0
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._appended = self._appended_before = 0
        for node_id in range(1, self.parameters.voters + self.parameters.observers + 1):
            self._new_disk(node_id)
        self._format()

    # A run ------------------------------------------------------------------------------------------------------------------------------

    def run(self) -> World:
        """Cause faults for a while. Then stop them and wait until the quorum has recovered."""
        try:
            self._run()
        except PromiseError as error:
            raise self._failure(error) from error
        except (AssertionError, DecodeError) as error:
            raise self._failure(error) from error
        return self

    def _run(self) -> None:
        for node in self.nodes.values():
            self.at(self.rng.randrange(50), partial(self.start, node))
        faults = (
            (self.parameters.append_every_ms, self.append),
            (self.parameters.crash_every_ms, self.crash_some),
            (self.parameters.pause_every_ms, self.pause_some),
            (self.parameters.partition_every_ms, self.partition),
            (self.parameters.snapshot_every_ms, self.snapshot_some),
            (self.parameters.change_every_ms, self.change_quorum),
        )
        for every_ms, fault in faults:
            if every_ms:
                self.repeat(every_ms, fault)
        self.turn(self.now_ms + self.parameters.faults_ms, lambda: False)
        self.is_quiet = True
        self.cut.clear()
        for node in self.nodes.values():
            node.paused_until_ms = 0
            node.log.flushes_before_crash = None
            if node.raft is None:
                self.start(node)
        self._appended_before = self._appended
        recovered = self.turn(self.now_ms + QUIET_MS, self.has_recovered)
        promise(recovered, f"no recovery within {QUIET_MS} ms without faults: {[self._shown(node) for node in self.nodes.values()]}")

    def turn(self, until_ms: int, is_enough: Callable[[], bool]) -> bool:
        """Run the events that are due until then. Return whether `is_enough` became true."""
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._queue)
            self.events += 1
            event()
            if is_enough():
                return True
        self.now_ms = until_ms
        return False

    def has_recovered(self) -> bool:
        """Return whether there is a leader, a new record is committed, and every log is complete."""
        leaders = [node for node in self.nodes.values() if node.raft is not None and node.raft.is_leader]
        if not leaders or self._appended == self._appended_before:
            return False
        leader = max(leaders, key=lambda node: node.raft.state.epoch if node.raft else 0)
        end = leader.log.end_offset
        return all(node.raft is not None and node.log.end_offset == end and node.raft.high_watermark == end for node in self.nodes.values())

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        """Run an event after a delay."""
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), event))

    def repeat(self, every_ms: int, fault: Callable[[], None]) -> None:
        """Repeat a fault at random times. Appends continue in the time without faults."""

        def again() -> None:
            if not self.is_quiet or fault == self.append:
                fault()
                self.at(1 + self.rng.randrange(2 * every_ms), again)

        self.at(self.rng.randrange(2 * every_ms), again)

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        self.trace.append(f"{self.now_ms:7d} {text}")

    def _failure(self, error: Exception) -> PromiseError:
        lines = "\n".join(self.trace)
        return PromiseError(f"seed {self.seed}: {error or type(error).__name__}\n{self.parameters}\n{lines}")

    def _shown(self, node: SimulatedNode) -> str:
        role = "down" if node.raft is None else f"{type(node.raft.state).__name__}@{node.raft.state.epoch}"
        return f"{node.key.id} {role} {node.log.start_offset}..{node.log.flushed_offset}/{node.log.end_offset}"

    # Disks and processes ----------------------------------------------------------------------------------------------------------------

    def _new_disk(self, node_id: int) -> SimulatedNode:
        directory = self.rng.getrandbits(127).to_bytes(16, "big")
        node = self.nodes[node_id] = SimulatedNode(ReplicaKey(node_id, directory), MemoryLog(self.promises.on_append))
        return node

    def replace_disk(self, node: SimulatedNode) -> None:
        """Give a node that is no voter by the committed log an empty disk. It starts again as another replica."""
        self.counts["disks"] += 1
        self.note(f"{node.name} gets a new disk")
        fresh = SimulatedNode(ReplicaKey(node.key.id, self.rng.getrandbits(127).to_bytes(16, "big")), MemoryLog(self.promises.on_append))
        node.key, node.log, node.election = fresh.key, fresh.log, None
        if node.raft is not None:
            node.raft = None
            self.at(1 + self.rng.randrange(2 * self.parameters.down_ms), lambda: self.start(node))

    def endpoints(self, node: SimulatedNode) -> Endpoints:
        """Return the endpoints of a node. Some restarts give it an additional listener."""
        known = {LISTENER: Address(node.name, 9093)}
        return Endpoints({**known, "EXTRA": Address(node.name, 9094)} if node.extra_listener else known)

    def _format(self) -> None:
        voters = [self.nodes[id] for id in range(1, self.parameters.voters + 1)]
        self.static_voters = NO_VOTERS
        if self.parameters.kraft_version == 0:
            self.static_voters = VoterSet.static(LISTENER, {node.key.id: Address(node.name, 9093) for node in voters})
            return
        voter_set = VoterSet(VoterNode(node.key, self.endpoints(node), 0, 1) for node in voters)
        header = [control.snapshot_header(0), control.kraft_version(1), control.voters(voter_set)]
        data = control.control_batch(header, base_offset=0, epoch=0, now_ms=0)
        data += control.control_batch([control.snapshot_footer()], base_offset=3, epoch=0, now_ms=0)
        for node in voters:
            node.log.snapshots[BOOTSTRAP_SNAPSHOT_ID] = data

    def start(self, node: SimulatedNode) -> None:
        """Start the process of a node."""
        if node.raft is not None:
            return
        parameters = self.parameters
        settings = QuorumSettings(
            election_timeout_ms=parameters.election_timeout_ms,
            fetch_timeout_ms=parameters.fetch_timeout_ms,
            request_timeout_ms=parameters.request_timeout_ms,
            append_linger_ms=parameters.linger_ms,
            auto_join=parameters.auto_join,
            fetch_max_size=parameters.fetch_max_size,
            fetch_snapshot_max_size=parameters.snapshot_piece,
            fetch_max_wait_ms=min(500, parameters.fetch_timeout_ms // 2),
        )
        identity = Identity(
            node_id=node.key.id,
            directory_id=node.key.directory_id or b"",
            cluster_id="cluster",
            topic=TOPIC,
            topic_id=TOPIC_ID,
            listener=LISTENER,
            listeners=self.endpoints(node),
            static_voters=self.static_voters,
            bootstrap=[Node(-2 - index, f"n{id}", 9093) for index, id in enumerate(sorted(self.nodes))],
            can_become_voter=True,
            settings=settings,
            draw=self.rng.randrange,
        )
        node.life += 1
        node.log.flush_aside = partial(self._flush_later, node, node.life) if parameters.flush_ms else None
        node.state, node.applied = 0, BOOTSTRAP_SNAPSHOT_ID
        self.note(f"{node.name} starts with {node.election}, log {node.log.start_offset}..{node.log.end_offset}")
        self.step(node, lambda now_ms: self._booted(node, identity, now_ms))

    def _booted(self, node: SimulatedNode, identity: Identity, now_ms: int) -> list[Action]:
        node.raft = RaftNode(identity, node.log, SimulatedStore(self, node), now_ms)
        return node.raft.start(now_ms)

    def _flush_later(self, node: SimulatedNode, life: int) -> None:
        """End a flush after some time. The process gets the result when it is awake."""

        def told() -> None:
            if node.raft is None or node.life != life:
                return
            if self.is_asleep(node):
                self.at(node.paused_until_ms - self.now_ms, told)
            else:
                self.step(node, node.raft.on_flushed)

        def ended() -> None:
            if node.raft is None or node.life != life:
                return
            try:
                node.log.end_flush()
            except CrashError:
                self.crash(node)
                return
            self.counts["slow flushes"] += 1
            told()

        self.at(1 if self.is_quiet else 1 + self._disk_rng.randrange(self.parameters.flush_ms), ended)

    def crash(self, node: SimulatedNode) -> None:
        """Crash the process and lose data that was not durable. The process starts again after a while."""
        node.raft = None
        self.counts["crashes"] += 1
        node.log.crash(self.rng.randrange)
        self.note(f"{node.name} crashed, log {node.log.start_offset}..{node.log.end_offset}")
        node.extra_listener = self.rng.random() < 0.3
        self.at(1 + self.rng.randrange(2 * self.parameters.down_ms), lambda: self.start(node))

    def step(self, node: SimulatedNode, call: Callable[[int], list[Action]], crash_after: int = -1) -> None:
        """Call a node and do the actions that it returns. After `crash_after` of them, the node crashes."""
        try:
            actions = call(self.now_ms)
        except CrashError:
            self.crash(node)
            return
        for index, action in enumerate(actions):
            if index == crash_after:
                self.crash(node)
                return
            self._do(node, action)
        if node.raft is not None:
            self.promises.check(node, self.nodes.values())
            self._wake_later(node)

    def _wake_later(self, node: SimulatedNode) -> None:
        assert node.raft is not None
        wake_ms = node.raft.wake_up_ms
        if wake_ms == node.wake_ms and wake_ms > self.now_ms:
            return
        node.wake_ms = wake_ms
        life = node.life

        def wake() -> None:
            if node.raft is None or node.life != life or node.wake_ms != wake_ms:
                return
            if self.is_asleep(node):
                self.at(node.paused_until_ms - self.now_ms, wake)
                return
            node.wake_ms = -1
            self.step(node, node.raft.poll)

        self.at(max(1, min(wake_ms - self.now_ms, 10_000)), wake)

    def is_asleep(self, node: SimulatedNode) -> bool:
        """Return whether the process is paused."""
        return node.paused_until_ms > self.now_ms

    # Actions of a node ------------------------------------------------------------------------------------------------------------------

    def _do(self, node: SimulatedNode, action: Action) -> None:
        if isinstance(action, SendRequest):
            self._send(node, action)
        elif isinstance(action, Respond):
            self._respond(node, action)
        elif isinstance(action, Committed):
            self.promises.on_committed(node.key, action.batches)
            node.state, node.applied = fold(node.state, action.batches), last_epoch(action.batches)
            self.promises.on_state(node.key, node.applied.offset, node.state)
        elif isinstance(action, LoadSnapshot):
            node.state, node.applied = snapshot_state(node.log.snapshots[action.snapshot_id]), action.snapshot_id
            self.promises.on_state(node.key, node.applied.offset, node.state)
        else:
            self.note(f"{node.name} {action}")

    def _send(self, node: SimulatedNode, action: SendRequest) -> None:
        request = action.message
        data = request.encode(request.VERSIONS[-1])
        target, life = self.nodes[int(action.node.host[1:])], node.life

        def deliver() -> None:
            def answer(response: Any) -> None:
                self._travel(target, node, lambda: self._answered(node, life, action, response))

            if target.raft is None:
                if self.rng.random() < 0.5:
                    answer(error_response(request, "BROKER_NOT_AVAILABLE"))
                return
            message = type(request).decode(data, request.VERSIONS[-1])
            if isinstance(message, wire.ApiVersionsRequest):
                answer(wire.ApiVersionsResponse(supported_features=[api_versions_response.SupportedFeatureKey("kraft.version", 0, 1)]))
                return
            asked = Request((answer, message), message, request.VERSIONS[-1], LISTENER)
            self.step(target, lambda now_ms: target.raft.on_request(asked, now_ms) if target.raft else [], self._crash_point())

        self._travel(node, target, deliver)

    def _crash_point(self) -> int:
        """Return the number of actions of this step after which the node crashes, or -1 for no crash."""
        is_due = self.parameters.crash_every_ms and not self.is_quiet and self.rng.random() < 0.002
        return self.rng.randrange(4) if is_due else -1

    def _answered(self, node: SimulatedNode, life: int, action: SendRequest, response: Any) -> None:
        if node.raft is None or node.life != life:
            return
        version = response.VERSIONS[-1]
        message = type(response).decode(response.encode(version), version)
        self.step(
            node,
            lambda now_ms: node.raft.on_response(action.node, action.correlation_id, message, now_ms) if node.raft else [],
            self._crash_point(),
        )

    def _travel(self, source: SimulatedNode, target: SimulatedNode, arrive: Callable[[], None]) -> None:
        """Send something over the network. It arrives late, twice or not at all."""
        parameters = self.parameters

        def arrived() -> None:
            if frozenset((source.key.id, target.key.id)) in self.cut:
                return
            if self.is_asleep(target):
                self.at(target.paused_until_ms - self.now_ms, arrived)
            else:
                arrive()

        if self.is_quiet:
            self.at(1, arrived)
            return
        if frozenset((source.key.id, target.key.id)) in self.cut or self.rng.random() < parameters.loss:
            return
        for _ in range(2 if self.rng.random() < parameters.duplicates else 1):
            delay_ms = 1 + self.rng.randrange(parameters.delay_ms)
            self.at(delay_ms * (20 if self.rng.random() < parameters.slow else 1), arrived)

    def _respond(self, node: SimulatedNode, action: Respond) -> None:
        answer, request = action.token
        if isinstance(request, wire.VoteRequest):
            partition, asked = action.message.topics[0].partitions[0] if action.message.topics else None, request.topics[0].partitions[0]
            if partition is not None and partition.vote_granted and not asked.pre_vote:
                candidate = ReplicaKey.read(asked.replica_id, asked.replica_directory_id)
                self.promises.on_granted(node.key, asked.replica_epoch, candidate, node.election)
        answer(action.message)

    # Faults and work --------------------------------------------------------------------------------------------------------------------

    def _running(self) -> list[SimulatedNode]:
        return [node for node in self.nodes.values() if node.raft is not None and not self.is_asleep(node)]

    def append(self) -> None:
        """Append records at every node that takes itself for the leader."""
        for node in self._running():
            assert node.raft is not None
            if node.raft.is_leader:
                records = [b"record %d" % (self._appended + index) for index in range(1 + self.rng.randrange(3))]
                try:
                    node.raft.prepare_append(node.raft.state.epoch, records, self.now_ms)
                except ApiError as error:
                    self.note(f"{node.name} can't append: {error.name}")
                    continue
                self._appended += len(records)
                self.step(node, node.raft.schedule_append)

    def crash_some(self) -> None:
        """Let a node crash, now or in one of its next flushes."""
        running = self._running()
        if not running:
            return
        node = self.rng.choice(running)
        if self.rng.random() < self.parameters.crash_in_flush:
            node.log.flushes_before_crash = self.rng.randrange(3)
        else:
            self.crash(node)

    def pause_some(self) -> None:
        """Pause a process, as a long garbage collection does."""
        node = self.rng.choice(list(self.nodes.values()))
        node.paused_until_ms = self.now_ms + self.rng.randrange(2 * self.parameters.fetch_timeout_ms)
        self.note(f"{node.name} pauses until {node.paused_until_ms}")

    def partition(self) -> None:
        """Cut some links, or heal them all."""
        self.cut.clear()
        ids = list(self.nodes)
        if self.rng.random() < 0.6:
            side = set(self.rng.sample(ids, self.rng.randrange(len(ids) + 1)))
            self.cut = {frozenset((a, b)) for a in side for b in ids if b not in side}
        elif len(ids) > 1:
            self.cut = {frozenset(self.rng.sample(ids, 2))}
        self.note(f"cut: {sorted(map(sorted, self.cut))}")

    def snapshot_some(self) -> None:
        """Let a node write a snapshot of the state that it has applied, or delete old snapshots and the log before the latest one."""
        running = self._running()
        if not running:
            return
        node = self.rng.choice(running)
        assert node.raft is not None
        if self.rng.random() < 0.4:
            node.log.maybe_clean(self.now_ms)
            return
        # The applied state may belong to a log that a snapshot has replaced meanwhile.
        if node.applied > BOOTSTRAP_SNAPSHOT_ID and node.log.start_offset <= node.applied.offset <= node.log.high_watermark:
            writer = node.raft.create_snapshot(node.applied, self.now_ms, self.now_ms)
            if writer is not None:
                writer.append([b"%d" % node.state], self.now_ms)
                writer.freeze(self.now_ms)
                self.counts["snapshots"] += 1
                self.note(f"{node.name} wrote snapshot {node.applied}")

    def change_quorum(self) -> None:
        """Ask the leader to add or remove a voter, or to upgrade kraft.version. A node that is no voter may get a new disk."""
        for leader in self._running():
            assert leader.raft is not None
            state = leader.raft.state
            if not isinstance(state, LeaderState):
                continue
            if leader.raft.kraft_version == 0:
                try:
                    self.step(leader, partial(leader.raft.upgrade_kraft_version, state.epoch, 1))
                except ApiError as error:
                    self.note(f"{leader.name} can't upgrade: {error}")
                continue
            voters = leader.raft.voters
            outside = [node for node in self.nodes.values() if not voters.is_voter(node.key)]
            # Do not replace the disk of a node that is about to become a voter, perhaps because of a request that is still in flight.
            is_settled = state.added_voter is None and state.high_watermark == leader.log.end_offset and not self.parameters.auto_join
            if outside and is_settled and self.rng.random() < 0.1:
                self.replace_disk(self.rng.choice(outside))
                return
            request: Any
            if outside and self.rng.random() < 0.6:
                node = self.rng.choice(outside)
                listeners = [add_raft_voter_request.Listener(name, *address) for name, address in self.endpoints(node).items()]
                request = wire.AddRaftVoterRequest("cluster", 1000, node.key.id, node.key.directory_id or b"", listeners)
            elif len(voters) > 1:
                key = self.rng.choice(voters.keys)
                if len(voters) == 2 and key == leader.key:
                    # Not tested: a leader that removes itself from two voters and dies before the other one has that record. It leaves a
                    # quorum without a possible leader, in Kafka, too. The other voter lacks the vote of the node with the longer log, and
                    # that node is no longer a voter.
                    continue
                request = wire.RemoveRaftVoterRequest("cluster", key.id, key.directory_id_or_zero)
            else:
                continue

            def answered(response: Any, asked: Any = request) -> None:
                self.counts[type(asked).__name__] += response.error_code == 0
                self.note(f"{type(asked).__name__} of {asked.voter_id}: {response.error_code} {response.error_message}")

            asked = Request((answered, request), request, 0, LISTENER)
            self.step(leader, partial(leader.raft.on_request, asked))
