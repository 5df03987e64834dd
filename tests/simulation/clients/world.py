"""Whole nodes as in `coordinators.world`, whose clients are the library's own cores: producers (`writers`) and consumers (`readers`).

Two idempotent producers write to the topic that two groups read, one of each protocol. Three transactional ids write to the other topic.
Nodes die, are cut off and pause, so requests and answers are lost, come late, or are sent again. `books` has the rules. After the faults,
every record gets its outcome, every id commits a transaction, and both groups process every record.
"""

from __future__ import annotations

from kops.records import Batch, read_batches
from kops.storage.log_offsets import Isolation
from kops.storage.unified_log import UnifiedLog
from tests.simulation.clients.books import ReaderBook, WriterBook
from tests.simulation.clients.links import CoreClient
from tests.simulation.clients.readers import STRATEGIES, Reader
from tests.simulation.clients.writers import LAST_TIMEOUT_MS, IdempotentWriter, TransactionalWriter
from tests.simulation.coordinators.actors import Script
from tests.simulation.coordinators.groups import SESSION_MS, OffsetReader
from tests.simulation.coordinators.world import (
    ABORT_INTERVAL_MS,
    BOUND_MS,
    CLASSIC,
    CONSUMER,
    IDS,
    INPUT_PARTITIONS,
    INPUTS,
    CoordinatorChecks,
    CoordinatorWorld,
    Director,
)
from tests.simulation.node_checks import READ_BYTES
from tests.simulation.node_world import EVERYTHING, Mix

WRITERS, MEMBERS = 2, 2
GROUPS = {f"readers with {protocol}": protocol for protocol in (CLASSIC, CONSUMER)}
LIVES_MS = ((4_000, 15_000), (500, 2_500))
"""How long the members of a group live, by slot: partitions go to and fro between one that stays and others that come and go."""
READING_MS = 2 * SESSION_MS + 30_000


class ClientWorld(CoordinatorWorld):
    """The nodes and the clients."""

    def __init__(self, seed: int, *, mix: Mix = EVERYTHING, is_traced: bool = False) -> None:
        self.writers = WriterBook()
        self.readers = {group: ReaderBook(group) for group in GROUPS}
        super().__init__(seed, mix=mix, is_traced=is_traced)
        self.written_numbers = tuple(range(INPUT_PARTITIONS))
        self.groups = self.transactional_groups
        self.checks = ClientChecks(self)
        self.director: ClientDirector = ClientDirector(self)

    def end_work(self) -> None:
        """Let all clients finish their work, in time."""
        director = self.director
        self.run_until(self.is_in_sync, "all replicas in sync")
        director.end()
        self.run_until(director.are_records_sent, "the outcome of each record", BOUND_MS)
        self.run_until(director.are_ids_done, "a transaction of each id", 2 * LAST_TIMEOUT_MS + BOUND_MS)
        self.run_until(self.is_stable, "the last stable offset at the high watermark", LAST_TIMEOUT_MS + ABORT_INTERVAL_MS + BOUND_MS)
        self.run_until(self.is_all_processed, "the processing of every record", READING_MS)
        director.dismiss()
        self.run_until(director.are_members_gone, "the end of the members", BOUND_MS)
        director.read_all()
        self.run_until(director.is_all_read, "all offsets")
        self.run_until(lambda: self.client.is_idle, "the last committed record")

    def inputs_of(self, node_id: int, number: int) -> list[Batch]:
        """Return all batches of a partition of the input topic that a node has."""
        log = self.nodes[node_id].log(INPUTS, number)
        return [] if log is None else all_batches(log)

    def is_all_processed(self) -> bool:
        """Return whether both groups have processed every record."""
        topic = self.latest_image().topics.by_name[INPUTS]
        for number in self.written_numbers:
            leader = topic.partitions[number].leader
            if leader not in self.nodes or self.nodes[leader].log(INPUTS, number) is None:
                return False
            offsets = {record.offset for batch in self.inputs_of(leader, number) for record in batch.records()}
            if any(book.missing(number, offsets) for book in self.readers.values()):
                return False
        return True

    def _count(self) -> None:
        super()._count()
        self.counts["records of idempotent producers"] = sum(map(len, self.writers.sent.values()))
        failed = [one for records in self.writers.sent.values() for one in records if one.delivery.done() and one.delivery.exception()]
        self.counts["records that failed"] = len(failed)
        self.counts["records processed twice"] = sum(book.twice for book in self.readers.values())


def all_batches(log: UnifiedLog) -> list[Batch]:
    """Return all batches of a log below its high watermark."""
    found: list[Batch] = []
    offset = 0
    while offset < log.high_watermark:
        part = log.read(offset, READ_BYTES, Isolation.HIGH_WATERMARK, min_one_batch=True).records
        assert part is not None
        batches = list(read_batches(part.read_at(part.start, part.size)))
        found += batches
        offset = batches[-1].last_offset + 1
    return found


class ClientChecks(CoordinatorChecks):
    """The checks for coordinators, and those of the idempotent producers."""

    world: ClientWorld

    def look_at_all(self) -> None:
        """Check that every replica has the records of the producers in order, each once."""
        super().look_at_all()
        for node in self.world.brokers:
            for number in self.world.written_numbers:
                batches = self.world.inputs_of(node, number)
                if batches:
                    self.world.writers.check(number, batches, f"node {node}, {INPUTS}-{number}")


class ClientDirector(Director):
    """Starts and ends the lives of the clients."""

    world: ClientWorld

    def __init__(self, world: ClientWorld) -> None:
        super().__init__(world)
        self.is_ending = False
        self._writers: list[IdempotentWriter] = []
        self._lives: dict[str, list[TransactionalWriter]] = {one: [] for one in IDS}
        self._last: dict[str, TransactionalWriter] = {}
        self._readers: dict[tuple[str, int], Reader] = {}
        self._strategy = self.chance.choice(STRATEGIES)
        self._count = 0

    def begin(self) -> None:
        """Start all clients."""
        for slot in range(WRITERS):
            self._actor.start(self._follow_writers(slot))
        for one in IDS:
            self._actor.start(self._follow_lives(one))
        for group in GROUPS:
            for slot in range(MEMBERS):
                self._actor.start(self._follow_members(group, slot))
        self._reader = OffsetReader(self.world)

    def _next(self, what: str) -> str:
        self._count += 1
        return f"{what}-{self._count}"

    def _follow_writers(self, slot: int) -> Script:
        """Let one idempotent producer follow another that dies. The first ones are patient, so that no record of theirs may fail."""
        while not self.is_ending:
            writer = IdempotentWriter(self.world, self._next("writer"), is_patient=slot == 0)
            self._writers.append(writer)
            yield from self._live_for(3_000, 15_000, writer)
            if not self.is_ending and self.chance.random() < 0.5:
                writer.vanish()
            else:
                while not self.is_ending and not writer.is_gone:
                    yield self._actor.pause(100, 300)

    def _follow_lives(self, transactional_id: str) -> Script:
        """Let one life of a transactional id follow another. The one before may continue until it is fenced."""
        lives = self._lives[transactional_id]
        while not self.is_ending:
            if lives and self.chance.random() < 0.4:
                lives[-1].vanish()
            lives.append(TransactionalWriter(self.world, transactional_id, len(lives)))
            yield from self._live_for(2_000, 9_000, lives[-1])

    def _follow_members(self, group: str, slot: int) -> Script:
        """Let one member follow another that leaves or dies."""
        yield self._actor.pause(0, 800)
        while True:
            reader = self._readers[group, slot] = Reader(
                self.world, self._next("reader"), self.world.readers[group], GROUPS[group], self._strategy
            )
            yield from self._live_for(*LIVES_MS[slot], reader)
            while self.is_ending and not reader.is_gone:
                yield self._actor.pause(100, 300)
            if self.is_dismissed:
                return
            if self.chance.random() < 0.5:
                reader.is_leaving = True
                while not reader.is_gone:
                    yield self._actor.pause(50, 200)
            else:
                reader.vanish()

    def _live_for(self, low_ms: float, high_ms: float, one: CoreClient | None = None) -> Script:
        end_ms = self.world.clock.now_ms + self.chance.uniform(low_ms, high_ms)
        while not self.is_ending and self.world.clock.now_ms < end_ms and (one is None or not one.is_gone):
            yield self._actor.pause(100, 300)

    # the end ----------------------------------------------------------------------------------------------------------------------

    is_dismissed = False

    def end(self) -> None:
        """Replace no more clients, and start a last producer for each id, which must complete a transaction."""
        self.is_ending = True
        for one in IDS:
            for life in self._lives[one]:
                if not life.is_initialized or self.chance.random() < 0.6:
                    life.vanish()
            self._actor.start(self._finish(one))

    def _finish(self, transactional_id: str) -> Script:
        lives = self._lives[transactional_id]
        last = None
        while last is None or not last.is_done:
            last = self._last[transactional_id] = TransactionalWriter(self.world, transactional_id, len(lives))
            lives.append(last)
            last.is_last = True
            while not last.is_done and not last.is_gone:
                yield self._actor.pause(50, 100)

    def are_records_sent(self) -> bool:
        """Return whether every record of an idempotent producer that lives has its outcome."""
        return all(one.is_gone or one.is_idle for one in self._writers)

    def are_ids_done(self) -> bool:
        """Return whether the last producers have completed their transactions."""
        return len(self._last) == len(IDS) and all(one.is_done for one in self._last.values())

    def dismiss(self) -> None:
        """Let the members leave."""
        self.is_dismissed = True
        for one in self._readers.values():
            one.is_leaving = True

    def are_members_gone(self) -> bool:
        """Return whether all members have left."""
        return all(one.is_gone for one in self._readers.values())

    def read_all(self) -> None:
        """Read the offsets of all groups once more."""
        for one in self._last.values():
            one.vanish()
        super().read_all()
