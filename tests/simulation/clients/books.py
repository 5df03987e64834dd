"""The rules for idempotent producers and for consumers in `world`. Those for transactions are in `coordinators.books`.

- A producer's records are in a partition in the order in which they were sent, each once. One that was acknowledged is where the producer
  was told. One that is missing was reported to have failed.
- There are three exceptions. Kafka has them, too: `tests/differential/clients/producer/test_producer_dialogues.py` shows the producer, and
  `tests/differential/storage/test_log_twin.py` the leader.
  1. A leader that was restarted knows only the last batch of a producer. If several batches had no answer yet, it refuses the first one,
     which the producer sends again, with OUT_OF_ORDER_SEQUENCE_NUMBER. The producer takes all of them for lost, and sends them again in a
     new epoch. Only these records may be there more than once, each time in order.
  2. A leader that does not know a producer accepts any sequence number. If the first batches of a producer get no answer, and another node
     leads meanwhile, the next batch overtakes them. The first ones are refused then, until they have expired. Here, such a producer ends.
  3. A leader knows the last five batches of a producer. After a change of leader more of them may be in flight. Those that were replicated,
     and that the former leader does not acknowledge, are refused by the new one until they have expired. Here, such a producer ends.
- A group processes every record, and commits only what is processed. A member that gets a partition does not go back behind what was
  committed before. A commit that got no answer may have been accepted after the next one of the same generation, because it came on
  another connection.
"""

from __future__ import annotations

from collections import defaultdict
from operator import itemgetter
from typing import NamedTuple

from kops.client.producer.core._hot_records import Delivery
from kops.records import Batch


class SentRecord(NamedTuple):
    """A record of an idempotent producer: the how many-th of this producer in its partition."""

    writer: str
    partition: int
    number: int
    delivery: Delivery

    @property
    def text(self) -> str:
        """The value."""
        return f"{self.writer}/{self.number}"


class WriterBook:
    """The records of all idempotent producers."""

    def __init__(self) -> None:
        self.sent: dict[tuple[str, int], list[SentRecord]] = defaultdict(list)
        self.gone: set[str] = set()  # producers that died with records whose outcome they never learned
        self.refused: dict[tuple[str, int], set[int]] = defaultdict(set)  # see the first exception above

    def send(self, writer: str, partition: int) -> SentRecord:
        """Begin a record."""
        records = self.sent[writer, partition]
        records.append(SentRecord(writer, partition, len(records), Delivery()))
        return records[-1]

    def check(self, partition: int, batches: list[Batch], who: str) -> None:
        """Check the whole log of a partition."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for batch in batches:
            for record in () if batch.is_control else batch.records():
                writer, _, number = bytes(record.value or b"").decode().rpartition("/")
                found[writer].append((int(number), record.offset))
        for writer, places in found.items():
            places.sort(key=itemgetter(1))
            last = {number: index for index, (number, _) in enumerate(places)}
            refused = self.refused[writer, partition]
            numbers = [number for index, (number, _) in enumerate(places) if last[number] == index or number not in refused]
            assert numbers == sorted(set(numbers)), f"{who}: the records of {writer} are out of order or twice: {numbers}"
        for (writer, number_of_partition), records in self.sent.items():
            if number_of_partition == partition:
                self._check_sent(dict(found[writer]), records, f"{who}, {writer}")

    def _check_sent(self, found: dict[int, int], records: list[SentRecord], who: str) -> None:
        for one in records:
            if not one.delivery.done():
                assert one.writer in self.gone, f"{who}: {one.text} has no outcome"
            elif one.delivery.exception() is None:
                assert one.number in found, f"{who}: {one.text} was acknowledged and is not there"
                offset = one.delivery.metadata().offset
                assert offset in (-1, found[one.number]), f"{who}: {one.text} is at {found[one.number]}, acknowledged at {offset}"


class ReaderBook:
    """What the members of one group have processed and committed, by partition."""

    def __init__(self, group: str) -> None:
        self.group = group
        self.processed: dict[int, set[int]] = defaultdict(set)
        self.committed: dict[int, int] = {}
        self.asked: dict[int, int] = {}  # the highest commit that any member has sent
        self.twice = 0
        self._unanswered: dict[int, list[tuple[int, int]]] = defaultdict(list)  # the generation and the offset of each
        self._ends: dict[int, int] = defaultdict(int)  # all records before these are processed

    def commit(self, partition: int, offset: int, generation: int) -> None:
        """Record that a commit was acknowledged. Those of earlier generations are no longer accepted."""
        self.committed[partition] = max(offset, self.committed.get(partition, 0))
        self._unanswered[partition] = [one for one in self._unanswered[partition] if one[0] >= generation]

    def miss(self, partition: int, offset: int, generation: int) -> None:
        """Record that a commit got no answer."""
        self._unanswered[partition].append((generation, offset))

    def floor(self, partition: int) -> int:
        """Return the offset behind which a new owner does not go back."""
        return min([self.committed.get(partition, 0), *(offset for _, offset in self._unanswered[partition])])

    def check_commit(self, partition: int, offset: int, who: str) -> None:
        """Check that all records before an offset that is to be committed are processed. There are no markers in these partitions."""
        done = self.processed[partition]
        while self._ends[partition] in done:
            self._ends[partition] += 1
        end = self._ends[partition]
        self.asked[partition] = max(offset, self.asked.get(partition, 0))
        assert offset <= end, f"{who}: it commits {offset} for partition {partition}, where {end} is not processed"

    def process(self, partition: int, offset: int) -> None:
        """Record that a record was processed."""
        done = self.processed[partition]
        self.twice += offset in done
        done.add(offset)

    def missing(self, partition: int, offsets: set[int]) -> set[int]:
        """Return the records that nobody has processed."""
        return offsets - self.processed[partition]
