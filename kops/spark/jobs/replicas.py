"""Chooses the replica of each partition that a job reads, and finds where partitions end. Tasks read the logs; the driver compares."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kops.forensics.coordinators.internal_topics import INTERNAL, Chosen, choose_replicas, replica_end
from kops.forensics.coordinators.log_ends import log_end
from kops.forensics.inventory.replicas import Listing, Replica
from kops.forensics.questions.reading import segments_of
from kops.forensics.verify.parts import TASK_BYTES
from kops.spark.jobs.tasks import answers_of, cut, parallelism
from kops.spark.remembered import Unit
from kops.spark.stores.reading import task_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kops.forensics.inventory.tree import PartitionDir


def choose(spark: SparkSession, listing: Listing, named: Sequence[PartitionDir], task_bytes: int = TASK_BYTES) -> list[Replica]:
    """Choose one replica of each partition from these directories, by the rule of `kops log`. Tasks find the ends of those that compete."""
    return replicas_of(listing, competition(spark, listing, named, task_bytes).partitions)


def competition(spark: SparkSession, listing: Listing, named: Sequence[PartitionDir], task_bytes: int = TASK_BYTES) -> Chosen:
    """Like `one_replica_each`, with the ends of replicas found by tasks."""
    number: Counter[tuple[str | None, int]] = Counter((each.topic, each.partition) for each in named if each.topic is not None)
    rivals = [each for each in named if number[each.topic, each.partition] > 1]
    ends: Mapping[str, tuple[int, int]] = {}
    if rivals:
        work = cut(replicas_of(listing, rivals), None, parallelism(spark), task_bytes)
        ends = dict(zip((each.path for each in rivals), answers_of(spark, work, _replica_end, "finds the replicas to read"), strict=True))
    return choose_replicas(named, lambda each: ends[each.path])


def replicas_of(listing: Listing, directories: Iterable[PartitionDir]) -> list[Replica]:
    """The replicas of these directories of the listing's inventory."""
    by_path = {each.given: each for each in listing.replicas}
    return [by_path[each.path] for each in directories]


def _replica_end(replica: Replica) -> tuple[int, int]:
    return replica_end(replica.directory, task_files(replica))


def replica_unit(replica: Replica) -> Unit:
    """A replica as a unit of kept answers: they depend on all its segments."""
    logs = tuple(segment.log.path for segment in segments_of(replica) if segment.log is not None)
    directory = replica.directory
    return Unit((replica.given, directory.path, directory.topic, directory.partition, replica.broker, *logs), logs, replica.size)


def log_ends(spark: SparkSession, listing: Listing, task_bytes: int = TASK_BYTES) -> dict[tuple[str, int], int]:
    """Return where each partition ends: the largest end offset of its replicas."""
    live = [(key, each) for key, replicas in listing.by_partition().items() if key[0] not in INTERNAL for each in replicas]
    work = cut([each for _, each in live], None, parallelism(spark), task_bytes)
    found: dict[tuple[str, int], int] = {}
    for (key, _), end in zip(live, answers_of(spark, work, _log_end, "finds the ends of partitions"), strict=True):
        if end is not None:
            found[key] = max(end, found.get(key, end))
    return found


def _log_end(replica: Replica) -> int | None:
    return log_end(task_files(replica), replica.directory)
