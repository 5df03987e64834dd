"""The names of files and directories in a log directory, and what they mean.

Sources: Kafka's LogFileUtils (segment files: the base offset in 20 digits), LocalLog.parseTopicPartitionName and its patterns of `-delete`,
`-future` and `-stray`, Snapshots (`offset-epoch.checkpoint` of the metadata log).
"""

from __future__ import annotations

import re
from sys import intern
from typing import Final, Literal, NamedTuple

from kops.config.values.java import INT_MAX, LONG_MAX, NumberFormatError, parse_int, parse_long
from kops.errors import DecodeError

FileKind = Literal["log", "index", "timeindex", "txnindex", "snapshot", "checkpoint"]
FileSuffix = Literal["", ".deleted", ".cleaned", ".swap", ".part"]
DirState = Literal["", "delete", "future", "stray"]

CLEAN_SHUTDOWN: Final = ".kafka_cleanshutdown"
META_PROPERTIES: Final = "meta.properties"
PARTITION_METADATA: Final = "partition.metadata"
LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
QUORUM_STATE: Final = "quorum-state"
BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
REPLICATION_OFFSET_CHECKPOINT: Final = "replication-offset-checkpoint"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
METADATA_TOPIC: Final = "__cluster_metadata"
_MAX_NAME_LENGTH: Final = 255

# Every command imports this module, so patterns are compiled when first used (`re` caches them).
_SEGMENT_FILE: Final = r"([0-9]{1,20})\.(log|index|timeindex|txnindex|snapshot)(\.deleted|\.cleaned|\.swap)?"
_CHECKPOINT_FILE: Final = r"([0-9]{20})-([0-9]{10})(?:-[0-9]+)?\.checkpoint(\.deleted|\.part)?"
_NO_SPACE: Final = r"[^ \t\n\x0b\f\r]+"
_MARKED_DIR: Final = rf"({_NO_SPACE})-({_NO_SPACE})\.({_NO_SPACE})-(delete|future|stray)"


class LogFileName(NamedTuple):
    """The parsed name of a segment's file or of a metadata snapshot: kind, base offset and suffix. Only a `.checkpoint` has an `epoch`."""

    kind: FileKind
    offset: int
    suffix: FileSuffix = ""
    epoch: int | None = None


class PartitionDir(NamedTuple):
    """The parsed name of a partition's directory. `unique_id` is the part between the dot and the state (`topic-0.<id>-delete`), and ""
    without a state.
    """

    topic: str
    partition: int
    state: DirState = ""
    unique_id: str = ""


def parse_log_file(name: str) -> LogFileName | None:
    """Parse a file name. Returns None for a name that Kafka would not give to a file of a log."""
    found = re.fullmatch(_SEGMENT_FILE, name)
    if found is not None:
        offset = int(found[1])
        # Interned, because a large listing has few kinds in many names.
        return LogFileName(intern(found[2]), offset, intern(found[3] or "")) if offset <= LONG_MAX else None  # type: ignore[arg-type]
    found = re.fullmatch(_CHECKPOINT_FILE, name)
    if found is not None and int(found[1]) <= LONG_MAX and int(found[2]) <= INT_MAX:
        return LogFileName("checkpoint", int(found[1]), found[3] or "", int(found[2]))  # type: ignore[arg-type]
    return None


def log_file_name(offset: int, kind: FileKind, suffix: FileSuffix = "", *, epoch: int = 0) -> str:
    """Return the name of a segment's file. `epoch` is part of the name of a `.checkpoint` only."""
    if kind == "checkpoint":
        return f"{offset:020d}-{epoch:010d}.checkpoint{suffix}"
    return f"{offset_digits(offset)}.{kind}{suffix}"


def offset_digits(offset: int) -> str:
    """Format an offset for a file name, as Java does: twenty digits, after a minus sign if it is negative."""
    return f"{'-' if offset < 0 else ''}{abs(offset):020d}"


def offset_from_file_name(name: str) -> int:
    """Return the number before the first dot, as LogFileUtils.offsetFromFileName does (Long.parseLong: a sign and fewer digits are
    accepted).

    Raises DecodeError (`file-name`) where Kafka's loader ends with a NumberFormatException or, without a dot, StringIndexOutOfBounds.
    """
    prefix, dot, _ = name.partition(".")
    if not dot:
        raise DecodeError(f"'{name}' has no dot after an offset", code="file-name")
    try:
        return parse_long(prefix)
    except NumberFormatError as error:
        raise DecodeError(f"'{name}' does not begin with an offset: {error}", code="file-name") from error


def is_index_file(name: str) -> bool:
    """Whether the name is that of an offset, time or transaction index without a further suffix (LogFileUtils.isIndexFile)."""
    return name.endswith((".index", ".timeindex", ".txnindex"))


def parse_partition_dir(name: str) -> PartitionDir:
    """Return topic, partition and state of a directory's name.

    Raises DecodeError (`directory-name`) where LocalLog.parseTopicPartitionName throws KafkaException, which prevents a broker from
    starting.
    """
    state: DirState = ""
    unique_id = ""
    rest = name
    for candidate in ("delete", "future", "stray"):
        if name.endswith("-" + candidate):
            if re.fullmatch(_MARKED_DIR, name) is None:
                raise _not_a_partition(name)
            rest, _, unique_id = name.rpartition(".")
            unique_id = unique_id[: -len(candidate) - 1]
            state = candidate
    topic, dash, number = rest.rpartition("-")
    if not dash or not topic or not number:
        raise _not_a_partition(name)
    try:
        return PartitionDir(topic, parse_int(number), state, unique_id)
    except NumberFormatError as error:
        raise _not_a_partition(name) from error


def partition_dir_name(topic: str, partition: int, state: DirState = "", unique_id: str = "") -> str:
    """Return the name of a partition's directory. With `delete` or `stray`, the topic is shortened so that the name has at most 255
    characters.
    """
    if not state:
        return f"{topic}-{partition}"
    suffix = f"-{partition}.{unique_id}-{state}"
    return (topic if state == "future" else topic[: _MAX_NAME_LENGTH - len(suffix)]) + suffix


def _not_a_partition(name: str) -> DecodeError:
    return DecodeError(
        f"'{name}' is neither topic-partition nor topic-partition.uniqueId followed by -delete, -future or -stray", code="directory-name"
    )
