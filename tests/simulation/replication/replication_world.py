"""Replicas of one partition in a deterministic run with a seed: brokers, a network that loses messages, disks that lose data, a simple
controller.

There is one queue of events in virtual time. A broker is the real Partition, Fetcher, fetch sessions, purgatories and AlterPartitionManager
around a log in memory. The controller is a few lines that never fail. There are two kinds of crashes: a process is killed (its log stays),
or the machine loses power (data that was not flushed may be lost). A machine loses power only while another in-sync replica has everything,
because replication promises nothing otherwise. At the end all faults stop, and the partition must recover.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from kops.errors import ApiError
from kops.protocol import errors
from kops.protocol.declaration import Message
from kops.protocol.messages.alter_partition_request import AlterPartitionRequest
from kops.protocol.messages.alter_partition_response import AlterPartitionResponse
from kops.protocol.messages.alter_partition_response import PartitionData as AnsweredPartition
from kops.protocol.messages.alter_partition_response import TopicData as AnsweredTopic
from kops.protocol.messages.fetch_request import FetchRequest
from kops.protocol.messages.fetch_response import EpochEndOffset, PartitionData
from kops.protocol.messages.list_offsets_request import ListOffsetsRequest
from kops.protocol.messages.list_offsets_response import ListOffsetsPartitionResponse, ListOffsetsResponse, ListOffsetsTopicResponse
from kops.protocol.messages.offset_for_leader_epoch_request import OffsetForLeaderEpochRequest
from kops.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset as AnsweredEpoch,
)
from kops.protocol.messages.offset_for_leader_epoch_response import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kops.records.log_offsets import Isolation, TopicPartition
from kops.replication.following.fetch_state import InitialFetchState
from kops.replication.following.fetcher import Fetcher, Sent
from kops.replication.following.fetcher_manager import BrokerEndPoint, FetcherId, FetcherManager
from kops.replication.following.followers import FollowerReplicas
from kops.replication.following.leader_endpoint import FetcherSettings, RemoteLeader
from kops.replication.leading.alter_partition import AlterPartitionManager
from kops.replication.leading.fetch import FetchInfo, FetchParams
from kops.replication.leading.fetch_context import FetchContext, FetchManager
from kops.replication.leading.fetch_session import FetchMetadata, FetchSessionCache, TopicIdPartition
from kops.replication.leading.partition import Partition, Surroundings
from kops.replication.quota import UnboundedQuota
from kops.replication.waiting.delayed import (
    AwaitedFetch,
    DelayedDeleteRecords,
    DelayedFetch,
    DelayedProduce,
    PartitionResponse,
    Purgatories,
)
from kops.replication.waiting.purgatory import DelayedOperationPurgatory, OperationTimer
from tests.support.parts.replicating import TOPIC_ID, TP, MemoryLog, Registration, Settings, values

VERSION = 18
TICK_MS = 10
SESSION_MS = 60
QUIET_MS = 5_000
TRACE_LENGTH = 60


class PromiseError(Exception):
    """A promise of replication was broken."""


def promise(holds: bool, text: str) -> None:
    """Raise PromiseError unless `holds` is true."""
    if not holds:
        raise PromiseError(text)


@dataclass(frozen=True)
class Parameters:
    """The parameters that are drawn from the seed."""

    replicas: int
    min_isr: int
    delay_ms: int
    loss: float
    duplicates: float
    produce_every_ms: int
    crash_every_ms: int
    pause_every_ms: int
    flush_every_ms: int
    power_loss: float
    down_ms: int
    lag_max_ms: int
    fetch_bytes: int
    faults_ms: int

    @classmethod
    def draw(cls, rng: random.Random) -> Parameters:
        """Draw the parameters of a run. There are many kinds of runs, from calm to wild."""
        pick = rng.choice
        return cls(
            replicas=pick((2, 3, 3, 3, 4)),
            min_isr=pick((1, 2, 2, 2)),
            delay_ms=pick((1, 5, 30)),
            loss=pick((0.0, 0.01, 0.1, 0.2)),
            duplicates=pick((0.0, 0.05, 0.2)),
            produce_every_ms=pick((3, 10, 30)),
            crash_every_ms=pick((0, 80, 150, 400)),
            pause_every_ms=pick((0, 100, 300)),
            flush_every_ms=pick((10, 50, 500)),
            power_loss=pick((0.0, 0.5, 0.9)),
            down_ms=pick((10, 60, 200)),
            lag_max_ms=pick((60, 150)),
            fetch_bytes=pick((1, 60, 10_000)),
            faults_ms=pick((800, 1500)),
        )

    def __str__(self) -> str:
        return ", ".join(f"{field.name}={getattr(self, field.name)}" for field in fields(self))


@dataclass
class Image:
    """The metadata at one moment."""

    version: int
    registration: Registration
    epochs: dict[int, int]
    fenced: frozenset[int]


class Controller:
    """A controller that knows the living brokers, the leader and the ISR. It never fails."""

    def __init__(self, world: World) -> None:
        self.world = world
        ids = range(1, world.parameters.replicas + 1)
        self.epochs = dict.fromkeys(ids, 0)
        self.fenced = set(ids)
        self.registration = Registration(-1, 0, 0, tuple(ids), tuple(ids))
        self.version = 0
        self._next_epoch = itertools.count(1)

    def image(self) -> Image:
        return Image(self.version, self.registration, dict(self.epochs), frozenset(self.fenced))

    def register(self, broker_id: int) -> int:
        """Register a broker that has started. It leaves the ISR."""
        self.fence(broker_id)
        self.epochs[broker_id] = next(self._next_epoch)
        self._publish()
        return self.epochs[broker_id]

    def fence(self, broker_id: int) -> None:
        """Fence a broker that sends no heartbeats. Brokers that lost power are fenced no later than others. Otherwise a broker that has
        lost records could be the last one in sync.
        """
        for machine in self.world.machines.values():
            if machine.has_lost and machine.id not in self.fenced and machine.id != broker_id:
                self._fence(machine.id)
        self._fence(broker_id)

    def _fence(self, broker_id: int) -> None:
        self.fenced.add(broker_id)
        now = self.registration
        isr = tuple(each for each in now.isr if each != broker_id) or now.isr
        self._change(isr, -1 if now.leader == broker_id else now.leader)

    def unfence(self, broker_id: int) -> None:
        self.fenced.discard(broker_id)
        self._change(self.registration.isr, self.registration.leader)

    def _change(self, isr: Sequence[int], leader: int) -> None:
        now = self.registration
        if leader == -1:
            leader = next((each for each in isr if each not in self.fenced), -1)
        if (tuple(isr), leader) != (tuple(now.isr), now.leader):
            epoch = now.leader_epoch + (leader != now.leader or len(isr) < len(now.isr))
            self.registration = replace(now, isr=tuple(isr), leader=leader, leader_epoch=epoch, partition_epoch=now.partition_epoch + 1)
        self._publish()

    def _publish(self) -> None:
        self.version += 1
        self.world.note(f"controller v{self.version}: {self.registration} fenced {sorted(self.fenced)}")
        self.world.publish()

    def alter_partition(self, request: AlterPartitionRequest) -> AlterPartitionResponse:
        """Accept another ISR, or answer with an error."""
        if self.epochs[request.broker_id] != request.broker_epoch:
            return AlterPartitionResponse(error_code=errors.by_name("STALE_BROKER_EPOCH").code)
        asked = request.topics[0].partitions[0]
        now = self.registration
        error = "NONE"
        if request.broker_id != now.leader:
            error = "INVALID_REQUEST"
        elif asked.leader_epoch != now.leader_epoch:
            error = "FENCED_LEADER_EPOCH"
        elif asked.partition_epoch != now.partition_epoch:
            error = "INVALID_UPDATE_VERSION"
        elif any(
            member.broker_id in self.fenced or member.broker_epoch not in (-1, self.epochs[member.broker_id])
            for member in asked.new_isr_with_epochs
        ):
            error = "INELIGIBLE_REPLICA"
        else:
            isr = tuple(member.broker_id for member in asked.new_isr_with_epochs)
            self.registration = now = replace(now, isr=isr, partition_epoch=now.partition_epoch + 1)
            self._publish()
        answer = AnsweredPartition(0, errors.by_name(error).code, now.leader, now.leader_epoch, list(now.isr), 0, now.partition_epoch)
        return AlterPartitionResponse(topics=[AnsweredTopic(topic_id=TOPIC_ID, partitions=[answer])])


class Process:
    """A broker while it runs."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world = world
        self.machine = machine
        self.id = machine.id
        self.image: Image | None = None
        self.epoch = world.controller.register(self.id)
        self.timer = OperationTimer(self._now)
        self.purgatories = Purgatories(
            DelayedOperationPurgatory[DelayedProduce](self.timer),
            DelayedOperationPurgatory[DelayedFetch](self.timer),
            DelayedOperationPurgatory[DelayedDeleteRecords](self.timer),
        )
        self.alter = AlterPartitionManager(self.id, lambda: self.epoch, lambda: None)
        around = Surroundings(self.id, lambda: self.epoch, self._now, self, self, self.alter, self.purgatories, world.parameters.lag_max_ms)
        self.partition = Partition(TP, TOPIC_ID, around)
        self.partition.log = machine.log
        machine.log.update_high_watermark(machine.high_watermark_checkpoint)
        ids = world.rng
        self.sessions = FetchManager(FetchSessionCache(10, 1_000, lambda: ids.randrange(1, 2**31)), self._now)
        self.replicas = FollowerReplicas(lambda key: self.partition, UnboundedQuota(), lambda key, offset: None)
        self.fetchers = FetcherManager(1, self._new_fetcher, lambda fetcher_id, fetcher: None)

    def _now(self) -> int:
        return self.world.now_ms

    def _new_fetcher(self, fetcher_id: FetcherId, leader: BrokerEndPoint) -> Fetcher:
        settings = FetcherSettings(self.id, lambda: self.epoch, 20, 1, 10_000, self.world.parameters.fetch_bytes, 20)
        return Fetcher(RemoteLeader(settings, UnboundedQuota()), self.replicas, self._now, self.fetchers.failed, backoff_ms=20)

    # interfaces of the partition: the other brokers and the log manager

    def alive_broker_epoch(self, broker_id: int) -> int | None:
        assert self.image is not None
        return None if broker_id in self.image.fenced else self.image.epochs[broker_id]

    def is_fenced(self, broker_id: int) -> bool:
        return self.image is not None and broker_id in self.image.fenced

    def is_shutting_down(self, broker_id: int) -> bool:
        return False

    def truncate_to(self, offsets: dict[TopicPartition, int], *, is_future: bool = False) -> None:
        self.machine.truncate(offsets[TP])

    def truncate_fully_and_start_at(
        self, key: TopicPartition, offset: int, *, is_future: bool = False, log_start_offset: int | None = None
    ) -> None:
        promise(False, f"broker {self.id} empties its log to begin at {offset}")

    def replace_current_with_future_log(self, key: TopicPartition) -> None:
        raise AssertionError("nothing is moved")

    # metadata

    def on_image(self, image: Image) -> None:
        if self.image is not None and image.version <= self.image.version:
            return
        self.image = image
        registration = image.registration
        if registration.leader == self.id:
            before = self.partition.leader_epoch
            self.fetchers.remove([TP])
            self.partition.make_leader(registration, lambda: self.machine.log)
            if self.partition.is_leader and self.partition.leader_epoch > before:
                self.world.on_leader(self)
        elif self.partition.make_follower(registration, lambda: self.machine.log):
            self.fetchers.remove([TP])
            if registration.leader != -1:
                log = self.machine.log
                offset = log.high_watermark if log.latest_epoch is None else log.log_end_offset
                initial = InitialFetchState(TOPIC_ID, registration.leader_epoch, offset)
                self.fetchers.add({TP: (BrokerEndPoint(registration.leader, "localhost", 0), initial)})
        self.fetchers.stop_idle()
        self.partition.complete_delayed()

    # time

    def tick(self) -> None:
        """Do everything that is due."""
        self.timer.run_due()
        if self.world.now_ms % 30 < TICK_MS:
            self.partition.maybe_shrink_isr()
        self.send()

    def send(self) -> None:
        """Send the requests that are due."""
        for fetcher_id, fetcher in list(self.fetchers.fetchers.items()):
            sent = fetcher.next_request()
            if sent is not None:
                self.world.send_fetcher(self, fetcher_id, sent)
        request = self.alter.next_request(self.world.now_ms)
        if request is not None:
            self.world.send_controller(self, request)

    # requests

    def produce(self, value: int) -> None:
        try:
            append = self.partition.append_records_to_leader(values(value), -1)
        except ApiError:
            return
        offset = append.info.first_offset
        status = PartitionResponse("NONE", offset, -1, 0, offset + 1)

        def respond(statuses: dict[TopicPartition, PartitionResponse]) -> None:
            if statuses[TP].error == "NONE":
                self.world.on_acknowledged(offset, value)

        self.purgatories.produce.try_complete_else_watch(DelayedProduce(200, {TP: status}, lambda key: self.partition, respond), [TP])
        self.purgatories.fetch.check_and_complete(TP)
        if append.high_watermark_increased:
            self.partition.complete_delayed()

    def on_request(self, request: Message, respond: Callable[[Message], None]) -> None:
        if isinstance(request, FetchRequest):
            self._on_fetch(request, respond)
        elif isinstance(request, OffsetForLeaderEpochRequest):
            asked = request.topics[0].partitions[0]
            end = self.partition.last_offset_for_leader_epoch(asked.current_leader_epoch, asked.leader_epoch, fetch_only_from_leader=True)
            answer = AnsweredEpoch(errors.by_name(end.error).code, 0, end.leader_epoch, end.end_offset)
            respond(OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic=TP.topic, partitions=[answer])]))
        elif isinstance(request, ListOffsetsRequest):
            wanted = request.topics[0].partitions[0]
            row = ListOffsetsPartitionResponse(0)
            try:
                epoch = wanted.current_leader_epoch
                row.offset = self.partition.fetch_offset_for_timestamp(wanted.timestamp, None, epoch, fetch_only_from_leader=True).offset
            except ApiError as error:
                row.error_code = errors.by_name(error.name).code
            respond(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TP.topic, partitions=[row])]))

    def _on_fetch(self, request: FetchRequest, respond: Callable[[Message], None]) -> None:
        asked = {}
        for topic in request.topics:
            for each in topic.partitions:
                last = None if each.last_fetched_epoch == -1 else each.last_fetched_epoch
                info = FetchInfo(
                    each.fetch_offset, each.log_start_offset, each.partition_max_bytes, each.current_leader_epoch, last, topic.topic_id
                )
                asked[TopicIdPartition(topic.topic_id, TP.topic, each.partition)] = info
        forget = [TopicIdPartition(topic.topic_id, TP.topic, each) for topic in request.forgotten_topics_data for each in topic.partitions]
        metadata = FetchMetadata(request.session_id, request.session_epoch)
        context = self.sessions.new_context(VERSION, metadata, asked, forget, {TOPIC_ID: TP.topic}.get, is_from_follower=True)
        replica = request.replica_state
        params = FetchParams(replica.replica_id, replica.replica_epoch, request.max_wait_ms, 1, request.max_bytes, Isolation.LOG_END)
        self._serve(context, params, respond)

    def _serve(self, context: FetchContext, params: FetchParams, respond: Callable[[Message], None]) -> None:
        parts = dict(context.partitions())
        found = {part: self._read(params, info, update=True) for part, info in parts.items()}
        waits = {part: start for part, (data, start) in found.items() if start is not None and data.records is None}
        if not waits or len(waits) < len(found):
            respond(context.respond({part: data for part, (data, _) in found.items()}))
            return

        def answer() -> None:
            respond(context.respond({part: self._read(params, info, update=False)[0] for part, info in parts.items()}))

        part, start = waits.popitem()
        parked = DelayedFetch(
            params, {TP: AwaitedFetch(start, parts[part])}, lambda key: self.partition, lambda partition, replica_id: False, answer
        )
        self.purgatories.fetch.try_complete_else_watch(parked, [TP])

    def _read(self, params: FetchParams, info: FetchInfo, *, update: bool) -> tuple[PartitionData, Any]:
        data = PartitionData(high_watermark=-1, log_start_offset=-1)
        try:
            read = self.partition.fetch_records(
                params, info, self.world.now_ms, info.max_bytes, min_one_batch=True, update_fetch_state=update
            )
        except ApiError as error:
            data.error_code = errors.by_name(error.name).code
            return data, None
        data.high_watermark, data.log_start_offset = read.high_watermark, read.log_start_offset
        if read.diverging_epoch is not None:
            data.diverging_epoch = EpochEndOffset(read.diverging_epoch.leader_epoch, read.diverging_epoch.end_offset)
            return data, None
        assert read.fetched is not None
        data.records = read.fetched.records
        return data, read.fetched.offset_metadata


@dataclass
class Machine:
    """A disk and, while it runs, a process."""

    id: int
    log: MemoryLog
    flushed: int = 0
    high_watermark_checkpoint: int = 0
    process: Process | None = None
    paused_until_ms: int = 0
    silent_since_ms: int | None = None
    has_lost: bool = False
    checked: int = 0
    truncations: int = 0

    def truncate(self, offset: int) -> None:
        promise(offset >= self.log.high_watermark, f"broker {self.id} cuts at {offset}, below its high watermark {self.log.high_watermark}")
        self.truncations += offset < self.log.log_end_offset
        self.log.truncate_to(offset)
        self.flushed = min(self.flushed, offset)

    def flush(self) -> None:
        self.flushed = self.log.log_end_offset
        self.high_watermark_checkpoint = self.log.high_watermark


class World:
    """One run. Its parameters are drawn from the seed, except for those in `given`. `run()` raises PromiseError with the seed."""

    def __init__(self, seed: int, **given: Any) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.parameters = replace(Parameters.draw(self.rng), **given)
        self.now_ms = 1_000
        self.trace: deque[str] = deque(maxlen=TRACE_LENGTH)
        self.events = 0
        self.is_quiet = False
        self.committed: dict[int, tuple[int, int]] = {}
        self.acknowledged: dict[int, int] = {}
        self.leaders: dict[int, int] = {}
        self.counts: dict[str, int] = dict.fromkeys(("crash", "power loss", "pause", "truncation"), 0)
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._values = itertools.count(1)
        settings = Settings(min(self.parameters.min_isr, self.parameters.replicas))
        self.machines = {each: Machine(each, MemoryLog(settings)) for each in range(1, self.parameters.replicas + 1)}
        self.controller = Controller(self)

    # a run

    def run(self) -> World:
        try:
            self._run()
        except (PromiseError, AssertionError) as error:
            raise self._failure(error) from error
        return self

    def _failure(self, error: Exception) -> PromiseError:
        return PromiseError("\n".join([f"seed {self.seed}: {error}", f"with {self.parameters}", *self.trace]))

    def _run(self) -> None:
        for machine in self.machines.values():
            self.start(machine)
            self._every(TICK_MS, partial(self._tick, machine), jitter=False)
        self._every(TICK_MS, self._heartbeats, jitter=False)
        self._every(self.parameters.flush_every_ms, self._flush_some)
        self._every(self.parameters.produce_every_ms, self._produce)
        for every_ms, fault in ((self.parameters.crash_every_ms, self._crash_some), (self.parameters.pause_every_ms, self._pause_some)):
            if every_ms:
                self._every(every_ms, fault, is_fault=True)
        self._turn(self.now_ms + self.parameters.faults_ms, lambda: False)
        self.is_quiet = True
        for machine in self.machines.values():
            machine.paused_until_ms = 0
            if machine.process is None:
                self.start(machine)
        target = len(self.acknowledged) + 3
        recovered = self._turn(self.now_ms + QUIET_MS, lambda: len(self.acknowledged) >= target and self._all_in_sync())
        self.counts["truncation"] = sum(machine.truncations for machine in self.machines.values())
        promise(recovered, f"no recovery within {QUIET_MS} ms: {[str(m.process and m.process.partition) for m in self.machines.values()]}")

    def _all_in_sync(self) -> bool:
        return len(self.controller.registration.isr) == self.parameters.replicas

    def _turn(self, until_ms: int, is_enough: Callable[[], bool]) -> bool:
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, event = heapq.heappop(self._queue)
            self.events += 1
            event()
            self._check()
            if is_enough():
                return True
        self.now_ms = until_ms
        return False

    def at(self, delay_ms: int, event: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._order), event))

    def _every(self, every_ms: int, do: Callable[[], None], *, jitter: bool = True, is_fault: bool = False) -> None:
        def again() -> None:
            if not (is_fault and self.is_quiet):
                do()
                self.at(1 + self.rng.randrange(2 * every_ms) if jitter else every_ms, again)

        self.at(self.rng.randrange(2 * every_ms), again)

    def note(self, text: str) -> None:
        self.trace.append(f"{self.now_ms:6d} {text}")

    # the network

    def deliver(self, event: Callable[[], None]) -> None:
        """Deliver an event late, twice or not at all."""
        copies = 1
        if not self.is_quiet:
            copies = 0 if self.rng.random() < self.parameters.loss else 1 + (self.rng.random() < self.parameters.duplicates)
        for _ in range(copies):
            slow = 10 if not self.is_quiet and self.rng.random() < 0.05 else 1
            self.at(1 + (0 if self.is_quiet else self.rng.randrange(self.parameters.delay_ms * slow)), event)

    def to_process(self, process: Process, event: Callable[[], None]) -> None:
        """Run an event at a process if it still runs. If the process is paused, the event waits."""
        machine = process.machine
        if machine.process is not process:
            return
        if machine.paused_until_ms > self.now_ms:
            self.at(machine.paused_until_ms - self.now_ms, partial(self.to_process, process, event))
        else:
            event()

    def publish(self) -> None:
        """Send the metadata to every broker. A broker that does not get it receives it with its next heartbeat."""
        image = self.controller.image()
        for machine in self.machines.values():
            if machine.process is not None:
                self.deliver(partial(self.to_process, machine.process, partial(machine.process.on_image, image)))

    def send_fetcher(self, process: Process, fetcher_id: FetcherId, sent: Sent) -> None:
        """Send a request to the leader. The fetcher gives up if no response arrives for a while."""
        target = self.machines[fetcher_id.broker_id]

        def serve() -> None:
            if target.process is not None:
                self.to_process(target.process, lambda: target.process.on_request(sent.message, answer) if target.process else None)

        def answer(response: Message) -> None:
            self.deliver(lambda: self.to_process(process, lambda: take(response)))

        def take(response: Message) -> None:
            fetcher = process.fetchers.fetchers.get(fetcher_id)
            if fetcher is not None:
                fetcher.on_response(sent, response, VERSION)
                process.send()

        def give_up() -> None:
            fetcher = process.fetchers.fetchers.get(fetcher_id)
            if fetcher is not None:
                fetcher.on_failure(sent)

        self.deliver(serve)
        self.at(150, lambda: self.to_process(process, give_up))

    def send_controller(self, process: Process, request: AlterPartitionRequest) -> None:
        """Send a request to the controller. The answer may be late or lost."""
        answered: list[bool] = []

        def serve() -> None:
            response = self.controller.alter_partition(request)
            self.deliver(lambda: self.to_process(process, lambda: take(response)))

        def take(response: AlterPartitionResponse) -> None:
            if not answered:
                answered.append(True)
                process.alter.on_response(response, self.now_ms)

        def give_up() -> None:
            if not answered:
                answered.append(True)
                process.alter.on_failure(self.now_ms)

        self.deliver(serve)
        self.at(150, lambda: self.to_process(process, give_up))

    # brokers

    def start(self, machine: Machine) -> None:
        if machine.process is None:
            machine.checked = 0
            machine.log.high_watermark = 0
            machine.process = Process(self, machine)
            machine.has_lost = False
            machine.process.on_image(self.controller.image())
            self.note(f"broker {machine.id} starts, epoch {machine.process.epoch}, log end {machine.log.log_end_offset}")

    def _tick(self, machine: Machine) -> None:
        if machine.process is not None and machine.paused_until_ms <= self.now_ms:
            machine.process.tick()

    def _heartbeats(self) -> None:
        for machine in self.machines.values():
            if machine.process is None or machine.paused_until_ms > self.now_ms:
                machine.silent_since_ms = machine.silent_since_ms or self.now_ms
                if self.now_ms - machine.silent_since_ms > SESSION_MS and machine.id not in self.controller.fenced:
                    self.controller.fence(machine.id)
                continue
            machine.silent_since_ms = None
            if machine.id in self.controller.fenced:
                self.controller.unfence(machine.id)
            image = machine.process.image
            if image is None or image.version < self.controller.version:
                machine.process.on_image(self.controller.image())

    def _flush_some(self) -> None:
        self.rng.choice(list(self.machines.values())).flush()

    def _produce(self) -> None:
        if self.is_quiet and self.rng.random() < 0.9:
            return
        for machine in self.machines.values():
            process = machine.process
            if process is not None and machine.paused_until_ms <= self.now_ms and process.partition.is_leader:
                process.produce(next(self._values))

    def _crash_some(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        if machine.process is None:
            return
        machine.process = None
        machine.paused_until_ms = 0
        others = [self.machines[each] for each in self.controller.registration.isr if each != machine.id]
        kind = "crash"
        if self.rng.random() < self.parameters.power_loss and any(not other.has_lost for other in others):
            kind = "power loss"
            machine.has_lost = True
            end = self.rng.randint(min(machine.flushed, machine.log.log_end_offset), machine.log.log_end_offset)
            machine.log.high_watermark = 0
            machine.log.truncate_to(end)
        self.counts[kind] += 1
        self.note(f"broker {machine.id}: {kind}, log end {machine.log.log_end_offset}")
        self.at(1 + self.rng.randrange(2 * self.parameters.down_ms), partial(self.start, machine))

    def _pause_some(self) -> None:
        machine = self.rng.choice(list(self.machines.values()))
        if machine.process is not None:
            self.counts["pause"] += 1
            machine.paused_until_ms = self.now_ms + self.rng.randrange(3 * SESSION_MS)
            self.note(f"broker {machine.id} pauses until {machine.paused_until_ms}")

    # promises

    def on_leader(self, process: Process) -> None:
        """Check that an epoch has one leader and that the leader has everything that was committed."""
        epoch, log = process.partition.leader_epoch, process.machine.log
        self.note(f"broker {process.id} leads epoch {epoch} from {log.log_end_offset}")
        promise(self.leaders.setdefault(epoch, process.id) == process.id, f"two leaders in epoch {epoch}")
        if epoch == self.controller.registration.leader_epoch:
            for offset, entry in self.committed.items():
                promise(
                    offset < log.log_end_offset and log.entries[offset] == entry, f"leader {process.id} has not offset {offset}: {entry}"
                )

    def on_acknowledged(self, offset: int, value: int) -> None:
        """Check that an acknowledged record is committed."""
        self.acknowledged[offset] = value
        self._check()
        entry = self.committed.get(offset)
        promise(entry is not None and entry[1] == value, f"acknowledged {value} at {offset}, committed is {entry}")

    def _check(self) -> None:
        for machine in self.machines.values():
            if machine.process is not None:
                log = machine.log
                promise(log.high_watermark <= log.log_end_offset, f"broker {machine.id}: high watermark beyond the end")
                for offset in range(machine.checked, log.high_watermark):
                    entry = self.committed.setdefault(offset, log.entries[offset])
                    promise(entry == log.entries[offset], f"offset {offset} was {entry}, broker {machine.id} has {log.entries[offset]}")
                machine.checked = max(machine.checked, log.high_watermark)
        self._check_isr()

    def _check_isr(self) -> None:
        """Check that the high watermark is not above the end of any log in the ISR."""
        now = self.controller.registration
        leader = self.machines.get(now.leader)
        if leader is None or leader.process is None or leader.process.partition.leader_epoch != now.leader_epoch:
            return
        for each in now.isr:
            member = self.machines[each]
            promise(
                member.has_lost or member.log.log_end_offset >= leader.log.high_watermark,
                f"in-sync broker {each} ends at {member.log.log_end_offset}, the high watermark is {leader.log.high_watermark}",
            )
