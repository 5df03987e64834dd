"""Sends the batches of a replay: one for each partition, with the numbers of the state file, and each of them once.

The producer of commands does the work (`kops.client.producer`). It neither retries nor splits a batch here. The replay does both itself,
because a batch must be looked for in the log before it is sent again (`kops.client.replay.looking`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kops.client.client import Client
from kops.client.errors import BatchRejectedError
from kops.client.producer.core.identity import Identity, SequenceKeeper
from kops.client.producer.faces.commands import CommandProducer, Outcome
from kops.client.producer.options import ProducerOptions
from kops.client.replay.rounds import Entry
from kops.client.replay.state import State
from kops.config.values.java import INT_MAX, LONG_MAX
from kops.errors import ApiError, KopsError, NotFoundError
from kops.records.log_offsets import TopicPartition

if TYPE_CHECKING:
    from kops.client.errors import KafkaError
    from kops.client.producer.core.batches import ProducerBatch

__all__ = ["BatchSender"]


class _StatedNumbers(SequenceKeeper):
    """The producer id and the sequence numbers of the state file. Nothing that happens to a batch changes them."""

    def __init__(self, state: State) -> None:
        super().__init__()
        self._state = state

    def prepare(self) -> bool:
        """Take the producer id of the state, which may be another one since the last batches."""
        self.identity = Identity(self._state.producer_id, self._state.producer_epoch)
        return False

    def assign(self, batch: ProducerBatch) -> None:
        """Assign the next sequence number of the partition."""
        batch.set_identity(*self.identity, self._state.targets[batch.partition].sequence)

    def completed(self, batch: ProducerBatch, base_offset: int) -> None:
        """Change nothing. The state is changed when all outcomes are known."""

    def failed(self, batch: ProducerBatch, error: KafkaError, *, was_refused: bool) -> None:
        """Change nothing. The replay decides what to do next."""


def _options(client: Client) -> ProducerOptions:
    """Return options with which a batch has exactly the records that are sent until the next flush."""
    settings = client.settings
    return replace(
        ProducerOptions.of_command(settings),
        acks=-1,
        is_idempotent=True,
        transactional_id=None,
        batch_size=INT_MAX,
        max_request_size=INT_MAX,
        linger_ms=INT_MAX,
        buffer_memory=LONG_MAX,
        delivery_timeout_ms=settings.default_api_timeout_ms,
        retries=0,
        sends_once=True,
        creates_topics=False,
    )


class BatchSender:
    """Sends batches, and counts their bytes. Only one batch of a partition is on its way at a time."""

    def __init__(self, client: Client, state: State) -> None:
        self._outcomes: dict[TopicPartition, int | KopsError] = {}
        self._producer = CommandProducer(client, on_outcome=self._take, options=_options(client), keeper=_StatedNumbers(state))

    @property
    def sent_bytes(self) -> int:
        """The size of all batches so far."""
        return self._producer.sent_bytes

    def send(self, batches: Mapping[TopicPartition, Sequence[Entry]]) -> Mapping[TopicPartition, int | KopsError]:
        """Send each batch once. Returns its first offset (-1: the broker has it, but does not say where) or its error.

        Raises UnreachableError, and ApiError for a topic that is gone.
        """
        self._outcomes = {}
        producer = self._producer
        for key, entries in batches.items():
            for _, record in entries:
                try:
                    producer.send(key.topic, record.key, record.value, record.headers, timestamp=record.timestamp, partition=key.partition)
                except NotFoundError as error:
                    raise ApiError("UNKNOWN_TOPIC_OR_PARTITION", str(error)) from error
        producer.flush()
        return self._outcomes

    def _take(self, outcome: Outcome) -> None:
        """Keep the outcome of a batch. If a broker rejects single records, the first error decides, and the replay halves the batch."""
        assert outcome.partition is not None, outcome
        key = TopicPartition(outcome.topic, outcome.partition)
        known = self._outcomes.get(key)
        if outcome.error is None:
            self._outcomes[key] = outcome.base_offset
        elif known is None or (isinstance(known, ApiError) and known.name == BatchRejectedError.code_name):
            self._outcomes[key] = outcome.error
