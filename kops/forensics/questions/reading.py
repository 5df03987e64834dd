"""The logs that a question is about, and how they are read on one machine: in parts of segments, and in several processes if that pays.

The question's function `read` reads a part and returns an answer that can be merged. Spark's tasks read the same parts (`kops.spark.jobs`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from kops.errors import UsageError
from kops.files import Files
from kops.forensics.coordinators.internal_topics import one_replica_each
from kops.forensics.inventory.replicas import Listing, Replica, list_kafkas
from kops.forensics.inventory.tree import PartitionDir, Segment
from kops.forensics.verify.parts import Part, part_bytes, split_segment
from kops.forensics.verify.workers import spread

AUTO_BYTES: Final = 64 << 20
AUTO_JOBS: Final = 4
PART_BYTES: Final = 256 << 20
LEAST_PART_BYTES: Final = 32 << 20
_AHEAD: Final = 4
"""Parts for each process that are begun before the first of them is needed."""

Answer = TypeVar("Answer")


class Unread(NamedTuple):
    """A file that could not be read, and why."""

    file: str
    reason: str


class Found(NamedTuple):
    """The live logs below some paths, and the paths that could not be read."""

    replicas: list[Replica]
    unread: list[Unread]
    listing: Listing


def find_logs(
    paths: Sequence[str], files: Files, topics: Sequence[str] = (), *, needed: Sequence[str] = (), directories_only: bool = False
) -> Found:
    """Return the live partition directories below the paths. With `topics`, only these topics and the `needed` ones are included.

    A path of a segment counts as a directory that has nothing else. Raises NotFoundError for a path that does not exist,
    UsageError for one without Kafka's files, for another kind of file, and for topics of which there is no partition.
    """
    topics = as_topics(topics)
    listing = list_kafkas(paths, files)
    for entry in listing.inventory.loose_files:
        if directories_only:
            raise UsageError(f"{entry.path}: is a file; name log directories or partition directories")
        if entry.kind != "log":
            raise UsageError(f"{entry.path}: not a log; name log directories, partition directories or .log files")
    unread = [Unread(each.path, each.reason) for each in listing.inventory.problems]
    live = [each for each in listing.replicas if not each.directory.state]
    check_topics(topics, {each.directory.topic for each in live}, paths)
    return Found(by_name([each for each in live if not topics or each.directory.topic in (*topics, *needed)]), unread, listing)


def as_topics(given: str | Sequence[str]) -> Sequence[str]:
    """Return the topics that a program names. One text is one name, and not a list of letters."""
    return (given,) if isinstance(given, str) else given


def check_topics(topics: Sequence[str], there: Collection[str | None], paths: Sequence[str | os.PathLike[str]]) -> None:
    """Raise UsageError for a topic that is not there."""
    missing = [topic for topic in topics if topic not in there]
    if missing:
        raise UsageError(f"--topic {missing[0]}: no partition of it below {' '.join(os.fspath(path) for path in paths)}")


def by_name(replicas: Sequence[Replica]) -> list[Replica]:
    """Return replicas in the order in which their rows are shown: topic, partition, broker, directory."""
    return sorted(
        replicas,
        key=lambda each: (each.directory.topic or "", each.directory.partition, -1 if each.broker is None else each.broker, each.given),
    )


def one_of_each(files: Files, replicas: Sequence[Replica]) -> tuple[list[Replica], list[tuple[PartitionDir, PartitionDir]]]:
    """Choose the replica of each partition that reaches furthest, by the rule of `kops log offsets`. Also return the others."""
    chosen = one_replica_each([each.directory for each in replicas], files)
    by_path = {each.directory.path: each for each in replicas}
    return by_name([by_path[each.path] for each in chosen.partitions]), chosen.left_out


def segments_of(replica: Replica) -> list[Segment]:
    """Return the segments to read: the live ones, or a file that was named itself (a `.log.deleted`, for example)."""
    live = replica.directory.live_segments
    return live if live else [each for each in replica.directory.segments if each.log is not None]


def parts_of(files: Files, number: int, replica: Replica, target: int, segments: Iterable[Segment] | None = None) -> Iterator[Part]:
    """Yield the parts of a replica's segments, in order; of all or of these."""
    for segment in segments_of(replica) if segments is None else segments:
        log, index = segment.log, segment.files.get("index")
        assert log is not None
        try:
            found = split_segment(files, number, log.path, log.size, None if index is None else index.path, target)
        except OSError:
            found = [Part(number, log.path, 0, log.size)]  # Reading it will report the error.
        yield from found


def answers(
    files: Files,
    replicas: Sequence[Replica],
    read: Callable[[Part], Answer],
    *,
    jobs: int | None = None,
    on_bytes: Callable[[int], None] | None = None,
    segments: Callable[[Replica], Iterable[Segment]] = segments_of,
) -> Iterator[tuple[int, Answer | Unread]]:
    """Yield `(number of the replica, result of read for a part)` in the order of replicas and parts.

    The result is an `Unread` if the file can't be read; its other parts are left out. `jobs` is the number of processes; None means as many
    as pay off. Only a few parts are read ahead, so that memory is bounded. `segments` chooses the segments of a replica.
    """
    sizes = [each.size for each in replicas]
    count = jobs_that_pay(jobs, sum(sizes))
    target = part_bytes(count, sizes, PART_BYTES, LEAST_PART_BYTES)
    parts = [part for number, each in enumerate(replicas) for part in parts_of(files, number, each, target, segments(each))]

    def work(part: Part) -> Answer | Unread:
        try:
            return read(part)
        except OSError as error:
            return Unread(replicas[part.number].as_given(part.path), error.strerror or str(error))

    places = _Places(len(parts), _AHEAD * count)
    if count == 1 or len(parts) < 2:
        found: Iterator[tuple[int, Answer | Unread]] = ((place, work(part)) for place, part in enumerate(parts))
    else:
        numbered = list(enumerate(parts))
        found = spread(lambda each: (each[0], work(each[1])), numbered, min(count, len(parts)), places)
    failed = ""
    for place, answer in _in_order(found):
        places.taken = place + 1
        part = parts[place]
        if on_bytes is not None:
            on_bytes(part.size)
        if not isinstance(answer, Unread):
            yield part.number, answer
        elif part.path != failed:
            failed = part.path
            yield part.number, answer


def by_replica(found: Iterator[tuple[int, Answer]], count: int) -> Iterator[Iterator[Answer]]:
    """Yield the answers of each of `count` replicas, one replica after the other. What is not taken of a replica is passed over."""
    waiting: list[tuple[int, Answer]] = []

    def of_one(number: int) -> Iterator[Answer]:
        while True:
            if not waiting:
                waiting.extend(islice(found, 1))
            if not waiting or waiting[0][0] != number:
                return
            yield waiting.pop()[1]

    for number in range(count):
        own = of_one(number)
        yield own
        for _ in own:
            pass


class _Places:
    """The numbers of the parts to begin, at most `ahead` beyond those that were `taken`. It has none while too many wait, and goes on
    later."""

    def __init__(self, count: int, ahead: int) -> None:
        self.taken = 0
        self._count = count
        self._ahead = ahead
        self._next = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self._next >= min(self._count, self.taken + self._ahead):
            raise StopIteration
        self._next += 1
        return self._next - 1


def _in_order(found: Iterator[tuple[int, Answer]]) -> Iterator[tuple[int, Answer]]:
    waiting: dict[int, Answer] = {}
    place = 0
    for number, answer in found:
        waiting[number] = answer
        while place in waiting:
            yield place, waiting.pop(place)
            place += 1


def jobs_that_pay(jobs: int | None, size: int) -> int:
    """Return the number of processes: the requested one, or (None) as many as pay off for so many bytes."""
    if jobs is not None:
        return max(jobs, 1)
    return 1 if size < AUTO_BYTES else min(os.cpu_count() or 1, AUTO_JOBS)
