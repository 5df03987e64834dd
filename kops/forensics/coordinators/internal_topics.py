"""Finds the partitions of an internal topic below the given paths, one replica of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from kops.errors import NotFoundError, UsageError
from kops.forensics.inventory.tree import Inventory, PartitionDir, Problem, open_paths
from kops.records import Batch, scan

if TYPE_CHECKING:
    from kops.files import Files

GROUP_TOPIC: Final = "__consumer_offsets"
TRANSACTION_TOPIC: Final = "__transaction_state"
INTERNAL: Final = (GROUP_TOPIC, TRANSACTION_TOPIC, "__share_group_state", "__cluster_metadata", "__remote_log_metadata")


class Chosen(NamedTuple):
    """The replicas to read, and those that are left out because another one reaches further: `(left out, in favour of)`.

    `problems` are the paths that could not be listed, so partitions of the topic may be below them.
    """

    partitions: list[PartitionDir]
    left_out: list[tuple[PartitionDir, PartitionDir]]
    problems: Sequence[Problem] = ()


def open_topic(paths: Sequence[str], topic: str, files: Files) -> Chosen:
    """Return the live partitions of an internal topic. Raises UsageError if there is none, and NotFoundError if there is none and a path
    can't be listed. The other errors are those of `open_inventory`."""
    inventory = open_inventory(paths, files)
    try:
        found = topic_partitions(inventory, topic, paths)
    except UsageError:
        checked_inventory(inventory)
        raise
    return one_replica_each(found, files)._replace(problems=inventory.problems)


def topic_partitions(inventory: Inventory, topic: str, paths: Sequence[str]) -> list[PartitionDir]:
    """All live replicas of an internal topic's partitions. UsageError if there is none."""
    named = [each for each in inventory.partitions() if each.topic == topic and not each.state]
    # A copy under another name, or one that is about to be deleted, counts only if the user named it.
    named += [each for each in inventory.loose_partitions if each not in named and each.topic in (None, topic)]
    if not named:
        raise UsageError(f"{' '.join(paths)}: no partition of {topic}; name its directories, or a log directory that has some")
    return named


def open_inventory(paths: Sequence[str], files: Files) -> Inventory:
    """List the paths. Raises NotFoundError for a path that does not exist, UsageError for a single file. What can't be listed is in the
    `problems` of the inventory."""
    return refuse_files(open_paths(paths, files))


def checked_inventory(inventory: Inventory) -> Inventory:
    """Return the inventory if all its paths are directories. Raises NotFoundError for one that can't be listed, UsageError for a file."""
    if inventory.problems:
        raise NotFoundError(f"{inventory.problems[0].path}: {inventory.problems[0].reason}")
    return refuse_files(inventory)


def refuse_files(inventory: Inventory) -> Inventory:
    """Return the inventory if no file was named. Raises UsageError for one."""
    if inventory.loose_files:
        raise UsageError(f"{inventory.loose_files[0].path}: a file; name the partition directory it is in")
    return inventory


def one_replica_each(partitions: Iterable[PartitionDir], files: Files) -> Chosen:
    """Choose the replica that ends with the highest leader epoch, then offset: no other replica has records that it lacks.

    A replica that can't be read has no end. If it is chosen, reading it reports the error.
    """

    def end_of(replica: PartitionDir) -> tuple[int, int]:
        try:
            return replica_end(replica, files)
        except OSError:
            return (-2, 0)

    return choose_replicas(partitions, end_of)


def choose_replicas(partitions: Iterable[PartitionDir], end_of: Callable[[PartitionDir], tuple[int, int]]) -> Chosen:
    """Like `one_replica_each`; `end_of` says where a replica ends (`replica_end`)."""
    replicas: dict[object, list[PartitionDir]] = {}
    for each in partitions:
        replicas.setdefault(each.path if each.topic is None else (each.topic, each.partition), []).append(each)
    chosen, left_out = [], []
    for group in replicas.values():
        # Finding the end of a log reads the batches of its last segment, so this is done only if there is a choice.
        best = max(group, key=end_of) if len(group) > 1 else group[0]
        chosen.append(best)
        left_out += [(each, best) for each in group if each is not best]
    return Chosen(sorted(chosen, key=lambda each: (each.topic or "", each.partition, each.path)), left_out)


def replica_end(partition: PartitionDir, files: Files) -> tuple[int, int]:
    """Leader epoch of the last batch, and the log's end."""
    for segment in reversed(partition.live_segments):
        assert segment.log is not None
        last: Batch | None = None
        with files.open(segment.log.path) as file:
            for item in scan(file, check_crc=False):
                last = item if isinstance(item, Batch) else last
        if last is not None:
            return last.partition_leader_epoch, last.next_offset
    return -1, partition.live_segments[-1].base_offset if partition.live_segments else 0
