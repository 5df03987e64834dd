"""Chooses the replica of each partition that a job reads, finds where partitions end, and divides large partitions.

Tasks read the logs; the driver compares and joins.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby, repeat
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from kops.files.urls import is_url
from kops.forensics.coordinators.internal_topics import INTERNAL, Chosen, choose_replicas, replica_end
from kops.forensics.coordinators.log_ends import log_end
from kops.forensics.coordinators.records import Lost
from kops.forensics.inventory.replicas import Listing, Replica
from kops.forensics.questions.reading import parts_of, segments_of
from kops.forensics.verify.parts import TASK_BYTES, Part, part_items
from kops.records import Damage
from kops.spark.jobs.tasks import answers_of, most_bytes, parallelism, size_of_parts
from kops.spark.packed import PackedItems, Tasks, cut, pack, unpack
from kops.spark.remembered import Answers, State, Unit
from kops.spark.stores.reading import driver_files, task_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kops.forensics.inventory.tree import PartitionDir
    from kops.records import Batch

Answer = TypeVar("Answer")


def choose(
    spark: SparkSession, listing: Listing, named: Sequence[PartitionDir], task_bytes: int = TASK_BYTES, state: State | None = None
) -> list[Replica]:
    """Choose one replica of each partition from these directories, by the rule of `kops log`. Tasks find the ends of those that compete.

    `state`: use and keep the ends there.
    """
    return replicas_of(listing, competition(spark, listing, named, task_bytes, state).partitions)


def competition(
    spark: SparkSession, listing: Listing, named: Sequence[PartitionDir], task_bytes: int = TASK_BYTES, state: State | None = None
) -> Chosen:
    """Like `one_replica_each`, with the ends of replicas found by tasks. A replica that can't be read has no end, either."""
    number: Counter[tuple[str | None, int]] = Counter((each.topic, each.partition) for each in named if each.topic is not None)
    rivals = [each for each in named if number[each.topic, each.partition] > 1]
    ends: Mapping[str, tuple[int, int]] = {}
    if rivals:
        found = _ends(spark, replicas_of(listing, rivals), _replica_end, "finds the replicas to read", task_bytes, state)
        ends = dict(zip((each.path for each in rivals), found, strict=True))
    return choose_replicas(named, lambda each: ends[each.path])


def bare(replica: Replica) -> Replica:
    """What rows say about a replica, without its files. A URL's are kept, because tasks check that objects are those that were listed."""
    if is_url(replica.directory.path):
        return replica
    return replace(replica, directory=replace(replica.directory, segments=[], files=[], unknown=[]))


def replicas_of(listing: Listing, directories: Iterable[PartitionDir]) -> list[Replica]:
    """The replicas of these directories of the listing's inventory."""
    by_path = {each.given: each for each in listing.replicas}
    return [by_path[each.path] for each in directories]


_NO_END: Final = (-2, 0)


def _replica_end(replica: Replica) -> tuple[int, int]:
    try:
        return replica_end(replica.directory, task_files(replica))
    except OSError:
        return _NO_END


def _ends(
    spark: SparkSession, replicas: Sequence[Replica], end: Callable[[Replica], Answer], what: str, task_bytes: int, state: State | None
) -> Iterable[Answer]:
    """Where each replica ends, as `end` says. Its last segment tells, or one before it."""
    if state is None:
        return answers_of(spark, cut(replicas, None, parallelism(spark), task_bytes), end, what)
    kept = state.answers("ends", [end.__name__])
    last = {each.given: sum(segment.log.size for segment in segments_of(each)[-1:] if segment.log is not None) for each in replicas}
    state.known(kept, (replica_unit(each)._replace(size=last[each.given]) for each in replicas))
    tasks = cut(replicas, None, parallelism(spark), task_bytes)
    return answers_of(spark, tasks, partial(_kept_end, end=end, kept=kept), what)


def _kept_end(replica: Replica, *, end: Callable[[Replica], Answer], kept: Answers) -> Answer:
    """Runs in a task."""
    return kept.of(replica_unit(replica), lambda: end(replica), keep=lambda found: found != _NO_END)


def replica_unit(replica: Replica) -> Unit:
    """A replica as a unit of kept answers: they depend on all its segments."""
    logs = tuple(segment.log.path for segment in segments_of(replica) if segment.log is not None)
    directory = replica.directory
    return Unit((replica.given, directory.path, directory.topic, directory.partition, replica.broker, *logs), logs, replica.size)


def read_in_parts(
    spark: SparkSession,
    replicas: Sequence[Replica],
    read: Callable[[Iterator[Batch | Lost], Replica], Answer],
    what: str,
    *,
    task_bytes: int = TASK_BYTES,
    state: State | None = None,
    kept: Answers | None = None,
    keep: Callable[[Answer], bool] = lambda _: True,
) -> dict[str, bytes]:
    """Read the replicas that are much larger than the share of a core, in parts. Returns what `read` makes of the batches of each part, in
    order and packed, by directory. The other replicas are not read. `keep`: whether an answer may be kept.
    """
    most = most_bytes((each.size for each in replicas), parallelism(spark), task_bytes)
    large = [each for each in replicas if each.size > most]
    size = size_of_parts((each.size for each in large), parallelism(spark), task_bytes)
    files = driver_files()
    work = PackedItems((part, bare(replica)) for number, replica in enumerate(large) for part in parts_of(files, number, replica, size))
    known: Iterable[bool] = repeat(False, len(work))
    if state is not None and kept is not None:
        known = state.known(kept, (_part_unit(*each) for each in work))
    sized = PackedItems((*each, is_known) for each, is_known in zip(work, known, strict=True))
    tasks = cut(sized, lambda each: 0 if each[2] else each[0].size, parallelism(spark), task_bytes)
    answers = zip(work, answers_of(spark, tasks, partial(_read_part, read=read, kept=kept, keep=keep), what), strict=True)
    by_directory = groupby(answers, key=lambda each: each[0][1].directory.path)
    return {path: pack([answer for _, answer in some]) for path, some in by_directory}


class Work(NamedTuple):
    """A replica, and the packed answers about its parts, if tasks have read them already."""

    replica: Replica
    packed: bytes | None

    @property
    def parts(self) -> list[Any] | None:
        """The answers."""
        return None if self.packed is None else unpack(self.packed)


def work_of(
    spark: SparkSession,
    replicas: Sequence[Replica],
    parts: Mapping[str, bytes],
    task_bytes: int,
    state: State | None,
    kept: Answers | None,
) -> Tasks[Work]:
    """Divide the replicas into tasks. Those with `parts`, and those whose answers are kept, count as read."""
    work = [Work(each, parts.get(each.directory.path)) for each in replicas]
    unread = [number for number, each in enumerate(work) if each.packed is None]
    if state is not None and kept is not None:
        known = state.known(kept, (replica_unit(replicas[number]) for number in unread))
        unread = [number for number, is_known in zip(unread, known, strict=True) if not is_known]
    sizes = {replicas[number].directory.path: replicas[number].size for number in unread}
    return cut(work, lambda each: sizes.get(each.replica.directory.path, 0), parallelism(spark), task_bytes)


def _part_unit(part: Part, replica: Replica) -> Unit:
    return Unit((replica.as_given(part.path), part.path, part.start, part.end), (part.path,), part.size)


def _read_part(
    work: tuple[Part, Replica, bool],
    *,
    read: Callable[[Iterator[Batch | Lost], Replica], Answer],
    kept: Answers | None,
    keep: Callable[[Answer], bool],
) -> Answer:
    """Runs in a task."""
    part, replica, _ = work
    if kept is None:
        return read(_part_batches(part, replica), replica)
    return kept.of(_part_unit(part, replica), lambda: read(_part_batches(part, replica), replica), keep=keep)


def _part_batches(part: Part, replica: Replica) -> Iterator[Batch | Lost]:
    """The batches and the damage of a part. Files are named as they were given."""
    with task_files(replica).open(part.path) as file:
        for item in part_items(file, part):
            if isinstance(item, Damage):
                yield Lost(replica.as_given(part.path), item.position, item.length, item.base_offset, item.last_offset, item.reason)
            else:
                yield item


def log_ends(spark: SparkSession, listing: Listing, task_bytes: int = TASK_BYTES, state: State | None = None) -> dict[tuple[str, int], int]:
    """Return where each partition ends: the largest end offset of its replicas. `state`: use and keep the ends of replicas there."""
    live = [(key, each) for key, replicas in listing.by_partition().items() if key[0] not in INTERNAL for each in replicas]
    ends = _ends(spark, [each for _, each in live], _log_end, "finds the ends of partitions", task_bytes, state)
    found: dict[tuple[str, int], int] = {}
    for (key, _), end in zip(live, ends, strict=True):
        if end is not None:
            found[key] = max(end, found.get(key, end))
    return found


def _log_end(replica: Replica) -> int | None:
    return log_end(task_files(replica), replica.directory)
