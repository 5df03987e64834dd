"""Sends the rounds of a replay to the leaders of the partitions, idempotently and with acks=all.

Source: Kafka's Sender and TransactionManager (an idempotent producer: retries keep producer id, epoch and sequence), ProduceResponse (which
errors concern a record). `kops.client.replay.sending` has the producer. A partition has one batch in flight. Before a batch is sent a
second time, it is looked for in the log (`kops.client.replay.looking`). A batch that the broker rejects because of its records is halved
until only the records at fault are rejected. An error that a later attempt may overcome ends the run, which can be continued.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from kops.client.client import Client, To, check, error_of
from kops.client.replay.looking import Doubt, end_offsets, find_batches
from kops.client.replay.rounds import Entry, Reader, Round, Source, next_round, pieces_of, record_size, same_round
from kops.client.replay.sending import BatchSender
from kops.client.replay.state import SourceState, State, TargetState
from kops.errors import ApiError, KopsError, UnreachableError, UsageError
from kops.files import Files
from kops.protocol.errors import by_name
from kops.records.batch import increment_sequence
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.protocol.declaration import Message

__all__ = ["Rejected", "Replay", "begin", "find_topics"]

_OF_RECORDS: Final = ("MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE", "INVALID_RECORD", "INVALID_TIMESTAMP", "CORRUPT_MESSAGE")
_NEW_ID: Final = ("UNKNOWN_PRODUCER_ID", "INVALID_PRODUCER_EPOCH", "INVALID_PRODUCER_ID_MAPPING")
_NEW_IDS: Final = 3
_RATE_MS: Final = 1000


class Rejected(Protocol):
    """The destination of records that the cluster rejects."""

    def add(self, entry: Entry, target: TopicPartition, error: KopsError) -> None:
        """Write a record with the reason."""

    def flush(self) -> int:
        """Make the added records durable, and return the total size."""


def find_topics(client: Client, names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """Return the topic id and number of partitions of the topics that exist."""
    response = client.fetch_metadata(sorted(set(names)))
    found = {}
    for topic in response.topics:
        error = error_of(topic.error_code)
        if error is None and topic.partitions:
            found[topic.name or ""] = (topic.topic_id.hex(), len(topic.partitions))
        elif error is not None and error.name not in ("UNKNOWN_TOPIC_OR_PARTITION", "INVALID_TOPIC_EXCEPTION"):
            raise ApiError(error.name, f"{topic.name}: {error}")
    return found


def begin(client: Client, state: State, sources: Sequence[Source]) -> None:
    """Store the cluster's topics and a producer id in a new state, or check that the cluster is still that of an earlier run.

    Raises UsageError if it is another one, or if a topic was deleted and created again.
    """
    topics = find_topics(client, [source.target for source in sources])
    cluster_id = client.metadata.cluster_id
    if state.producer_id < 0:
        state.topics, state.cluster_id = topics, cluster_id
        state.producer_id, state.producer_epoch = _new_id(client)
        state.sources = {source.name: SourceState() for source in sources}
        return
    if cluster_id != state.cluster_id:
        raise UsageError(f"the earlier run wrote to the cluster {state.cluster_id}, and this is {cluster_id}")
    for name, (identity, count) in state.topics.items():
        if name not in topics or topics[name][0] != identity:
            raise UsageError(f"{name}: the topic of the earlier run was deleted; begin again with another --state")
        if topics[name][1] != count and state.choices.get("partition") == "key":
            raise UsageError(f"{name}: had {count} partitions in the earlier run and has {topics[name][1]}; --partition key needs the same")


def _new_id(client: Client) -> tuple[int, int]:
    from kops.protocol.messages import InitProducerIdRequest, InitProducerIdResponse

    def handle(response: Message) -> tuple[int, int]:
        assert isinstance(response, InitProducerIdResponse)
        check(response.error_code)
        return response.producer_id, response.producer_epoch

    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0x7FFF_FFFF)
    return client.call("init producer id", To.ANY, lambda _: request, handle)


class Replay:
    """One run. `state` is saved to `path` before each request, so it can be continued after any end."""

    def __init__(
        self,
        client: Client,
        state: State,
        sources: Sequence[Source],
        rejected: Rejected,
        *,
        files: Files,
        path: str,
        by_key: bool = False,
        bytes_per_second: int | None = None,
    ) -> None:
        self.client = client
        self.state = state
        self._sources = sources
        self._rejected = rejected
        self._files = files
        self._path = path
        self._by_key = by_key
        self._rate = bytes_per_second
        self._refused: dict[TopicPartition, KopsError] = {}
        self._new_ids = 0
        self._is_in_doubt = state.is_open
        self._sender = BatchSender(client, state)
        self._began_ms = 0.0

    def run(self) -> None:
        """Send everything. Raises ApiError and UnreachableError for errors that a later run may overcome, and OSError for the state
        file."""
        state = self.state
        counts = {name: count for name, (_, count) in state.topics.items()}
        readers = [
            Reader(source, state.sources[source.name].position) for source in self._sources if not state.sources[source.name].is_over
        ]
        self._began_ms = self.client.now_ms()
        if state.is_open:
            self._send(same_round(readers, state, counts, by_key=self._by_key))
        while True:
            found = next_round(readers, counts, by_key=self._by_key)
            if not found.ends:
                break
            for name, end in found.ends.items():
                state.sources[name].end = end
            self._send(found)
        for each in state.sources.values():
            each.is_over = True
        self._save()

    def _save(self) -> None:
        self.state.rejected_size = self._rejected.flush()
        self.state.save(self._files, self._path)

    def _send(self, found: Round) -> None:
        """Send a round until each of its records was sent or rejected."""
        targets = self.state.targets
        new = [key for key in found.entries if key not in targets]
        ends = end_offsets(self.client, [key for key in new if self._missing(key) is None])
        targets.update({key: TargetState(offset=ends.get(key, 0)) for key in new})
        pieces = {key: deque(pieces_of(entries, targets[key])) for key, entries in found.entries.items()}
        while pieces:
            for key, target in targets.items():
                target.pieces = [len(piece) for piece in pieces.get(key, ())]
            self._save()
            self._wave(pieces)
            for key in [key for key, left in pieces.items() if not left]:
                del pieces[key]
        for name in found.ends:
            each = self.state.sources[name]
            if each.end is not None:
                each.position, each.end = each.end, None
        for target in targets.values():
            target.resolved, target.pieces = 0, []

    def _wave(self, pieces: dict[TopicPartition, deque[list[Entry]]]) -> None:
        """Send the first batch of each partition."""
        for key in pieces:
            error = self._refused.get(key) or self._missing(key)
            if error is not None:
                while pieces[key]:
                    self._reject(key, pieces[key].popleft(), error)
        batches = {key: left[0] for key, left in pieces.items() if left}
        outcomes = self._produce(batches) if batches else {}
        stop: KopsError | None = None
        needs_id = False
        for key, outcome in outcomes.items():
            piece = pieces[key].popleft()
            if not isinstance(outcome, ApiError):
                self._sent(key, piece, outcome)
                continue
            error = ApiError(outcome.name, f"{key.topic}-{key.partition}: {outcome}")
            if outcome.name in _OF_RECORDS and len(piece) > 1:
                middle = len(piece) // 2
                pieces[key].extendleft([piece[middle:], piece[:middle]])
            elif outcome.name in _OF_RECORDS:
                self._reject(key, piece, outcome)
            elif outcome.name in _NEW_ID and self._new_ids < _NEW_IDS:
                needs_id = True
                pieces[key].appendleft(piece)
            elif by_name(outcome.name).retriable or outcome.name in (*_NEW_ID, "OUT_OF_ORDER_SEQUENCE_NUMBER"):
                pieces[key].appendleft(piece)
                stop = stop or error
            else:
                self._refused[key] = outcome
                self._reject(key, piece, outcome)
        if needs_id:
            self._new_ids += 1
            self.state.producer_id, self.state.producer_epoch = _new_id(self.client)
            for target in self.state.targets.values():
                target.sequence = 0
        if stop is not None:
            raise stop
        self._wait()

    def _missing(self, key: TopicPartition) -> KopsError | None:
        topic = self.state.topics.get(key.topic)
        if topic is None:
            return ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"the cluster has no topic {key.topic}")
        if key.partition >= topic[1]:
            partitions = "1 partition" if topic[1] == 1 else f"{topic[1]} partitions"
            return ApiError("UNKNOWN_TOPIC_OR_PARTITION", f"{key.topic} has {partitions} and no partition {key.partition}")
        return None

    def _sent(self, key: TopicPartition, piece: list[Entry], base_offset: int) -> None:
        target = self.state.targets[key]
        target.offset = base_offset + len(piece) if base_offset >= 0 else target.offset
        target.sequence = increment_sequence(target.sequence, len(piece))
        target.resolved += len(piece)
        for entry in piece:
            source = self.state.sources[entry.source]
            source.sent += 1
            source.bytes += record_size(entry.record)

    def _reject(self, key: TopicPartition, piece: list[Entry], error: KopsError) -> None:
        self.state.targets[key].resolved += len(piece)
        for entry in piece:
            self.state.sources[entry.source].rejected += 1
            self._rejected.add(entry, key, error)

    def _produce(self, batches: Mapping[TopicPartition, list[Entry]]) -> dict[TopicPartition, int | ApiError]:
        """Send batches until there is an answer for each: its offset or an error. Raises UnreachableError if there is none in time."""
        found: dict[TopicPartition, int | ApiError] = {}
        left = dict(batches)
        until_ms = self.client.now_ms() + self.client.settings.default_api_timeout_ms
        tries = 0
        while True:
            if self._is_in_doubt:
                there = find_batches(self.client, {key: self._doubt(key) for key in left})
                found |= there
                left = {key: piece for key, piece in left.items() if key not in there}
            self._is_in_doubt = False
            again: dict[TopicPartition, ApiError] = {}
            for key, outcome in (self._sender.send(left) if left else {}).items():
                if not isinstance(outcome, int | ApiError):
                    raise outcome
                if isinstance(outcome, ApiError) and by_name(outcome.name).retriable:
                    again[key] = outcome
                else:
                    found[key] = outcome
            if not again:
                return found
            left = {key: left[key] for key in again}
            self._is_in_doubt = True
            if self.client.now_ms() >= until_ms:
                key, last = next(iter(again.items()))
                raise UnreachableError(f"no answer in time for a batch of {key.topic}-{key.partition}; last: {last}")
            self._pause(self.client.backoff.delay_ms(tries))
            tries += 1

    def _doubt(self, key: TopicPartition) -> Doubt:
        target = self.state.targets[key]
        return Doubt(target.offset, self.state.producer_id, self.state.producer_epoch, target.sequence)

    def _wait(self) -> None:
        """Wait until the bytes so far are due."""
        if self._rate is not None:
            self._pause(self._began_ms + self._sender.sent_bytes * _RATE_MS / self._rate - self.client.now_ms())

    def _pause(self, pause_ms: float) -> None:
        until_ms = self.client.now_ms() + pause_ms
        while (left_ms := until_ms - self.client.now_ms()) > 0:
            self.client.turn(left_ms)
