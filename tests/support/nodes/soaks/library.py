"""A soak's load by the library's own clients: a producer that sends to all partitions, and a consumer that reads along.

Records are those of `soaking`. `kops.Producer` raises the epoch of its producer where Kafka's Java producer does: if a node that was killed
has forgotten the batches before the last one, the batches that were in flight are sent again under the new epoch, and may be there twice.
A batch whose leader stops answering may be written, and more than five batches may follow it at the next leader. Then no leader knows it as
a duplicate, and it is refused until its delivery time is over, as with Kafka's producer (docs/design/testing.md).
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from functools import partial
from typing import Any

import kops
from kops.protocol.errors import by_name
from tests.support.nodes.soaks.soaking import PARTITIONS, PATIENCE_S, PAUSE_S, RECORD_BYTES, TIMEOUT_S, TOPIC, Key, Sending

DELIVERY_S = 180


class LibrarySender(Sending):
    """One idempotent `kops.Producer`, which sends to all partitions in turn until it is ended."""

    def __init__(self, number: int, bootstrap: str) -> None:
        super().__init__(number)
        self._producer = kops.Producer(
            bootstrap_servers=bootstrap,
            linger_ms=2,
            delivery_timeout_ms=1000 * DELIVERY_S,
            max_block_ms=1000 * PATIENCE_S,
            metadata_max_age_ms=1000,
        )

    @property
    def may_repeat(self) -> bool:
        """Whether the epoch was raised, so that records may be there again."""
        keeper = self._producer._core.keeper
        return keeper is not None and keeper.identity.epoch > 0

    def run(self) -> None:
        """Send records."""
        while not self._ended.wait(PAUSE_S):
            for partition in range(self.partitions):
                number = self.sent[partition]
                value = f"{self.number}:{partition}:{number}".ljust(RECORD_BYTES).encode()
                self.sent[partition] += 1
                self._producer.send(TOPIC, value, partition=partition, on_delivery=partial(self._delivered, partition, number))

    def _delivered(self, partition: int, number: int, place: Any, error: BaseException | None) -> None:
        if error is None:
            self.acknowledged[partition] += 1
        else:
            self.unanswered[partition].add(number)
            if by_name("OUT_OF_ORDER_SEQUENCE_NUMBER").words in str(error):
                return
            self.errors.append(f"partition {partition}, record {number}: {error!r}")

    def end(self) -> None:
        """Stop sending, and wait until all records have their answer."""
        self._ended.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        self._producer.flush(PATIENCE_S)
        self._producer.close(TIMEOUT_S)


class LibraryReader(threading.Thread):
    """The only member of a group: a `kops.Consumer` that reads every record, and commits.

    After a kill it may read records again, from its last commit on. It must not leave one out.
    """

    def __init__(self, bootstrap: str) -> None:
        super().__init__(name="reader", daemon=True)
        self.read = 0
        self.following: Counter[Key] = Counter()
        self.left_out: list[tuple[Key, range]] = []
        self.failure: BaseException | None = None
        self._ended = threading.Event()
        self._consumer = kops.Consumer(
            bootstrap_servers=bootstrap,
            group_id="soak-readers",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=500,
            metadata_max_age_ms=1000,
        )

    def __str__(self) -> str:
        return f"the reader {'reads' if self.is_alive() else 'ended'}, {self.read} records, failure {self.failure!r}"

    def run(self) -> None:
        """Read until ended."""
        try:
            with self._consumer as consumer:
                consumer.subscribe([TOPIC])
                while not self._ended.is_set():
                    for record in consumer.poll(0.2):
                        self._take(record.partition, record.value)
        except BaseException as error:
            self.failure = error
            raise

    def _take(self, partition: int, value: bytes) -> None:
        sender, named, number = map(int, value.split(b":"))
        assert named == partition
        key = sender, partition
        expected = self.following[key]
        if number > expected:
            self.left_out.append((key, range(expected, number)))
        self.following[key] = max(expected, number + 1)
        self.read += 1

    def end(self, senders: list[Sending]) -> None:
        """Wait until all acknowledged records are read, and check that none was left out. The senders must have ended."""
        deadline = time.monotonic() + PATIENCE_S
        while behind := self._behind(senders):
            assert self.failure is None, repr(self.failure)
            assert time.monotonic() < deadline, f"the reader does not come to the end: {behind}"
            time.sleep(0.1)
        self._ended.set()
        self.join(TIMEOUT_S)
        assert not self.is_alive()
        assert self.failure is None, repr(self.failure)
        unanswered = {(one.number, partition): numbers for one in senders for partition, numbers in one.unanswered.items()}
        lost = [(key, number) for key, numbers in self.left_out for number in numbers if number not in unanswered.get(key, ())]
        assert not lost, f"left out by the reader: {lost[:10]}"

    def _behind(self, senders: list[Sending]) -> list[str]:
        found = []
        for one in senders:
            for partition in range(max(PARTITIONS, one.partitions)):
                last = max(set(range(one.sent[partition])) - one.unanswered[partition], default=-1)
                if self.following[one.number, partition] <= last:
                    found.append(f"sender {one.number}, partition {partition}: {self.following[one.number, partition]} of {last + 1}")
        return found
