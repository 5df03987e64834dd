"""Every exception has an exit code in both schemes, and a message of one line."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterator

import pytest

import kops as package
from kops.cli.running import exit_codes
from kops.errors import KopsError
from tests.cli.conftest import Ran, kops_process

Kops = Callable[..., Ran]
LOG = ("log", "verify")
ELSEWHERE = ("doctor",)

# Class → exit code below `kops log|evidence|scan`, exit code elsewhere.
CODES = {
    "kops.coordinators.groups.assignors.spec": {"AssignorError": (8, 1)},
    "kops.coordinators.groups.consumer.state.embedded": {"SchemaError": (8, 1)},
    "kops.coordinators.groups.regexes.parser": {"RegexError": (8, 1)},
    "kops.coordinators.groups.streams.assignors.spec": {"TaskAssignorError": (8, 1)},
    "kops.coordinators.groups.streams.topics.partition_counts": {"TopicProblemError": (8, 1)},
    "kops.coordinators.runtime.shard_timer": {"OverriddenError": (8, 1)},
    "kops.coordinators.transactions.state": {"TransactionStateError": (8, 1)},
    "kops.errors": {
        "ApiError": (8, 1),
        "KopsError": (8, 1),
        "DecodeError": (8, 1),
        "UsageError": (16, 2),
        "NotFoundError": (8, 3),
        "UnreachableError": (8, 4),
        "LockHeldError": (8, 1),
        "MissingDependencyError": (8, 1),
    },
    "kops.broker.network.acceptor": {"BindError": (8, 1)},
    "kops.broker.quorum.format": {"FormatError": (8, 1)},
    "kops.client.consumer.errors": {
        "ConsumerClosedError": (8, 1),
        "ConsumerError": (8, 1),
        "CorruptRecordError": (8, 1),
        "InvalidGroupIdError": (8, 1),
        "InvalidOffsetError": (8, 1),
        "LogTruncationError": (8, 1),
        "NoOffsetForPartitionError": (8, 1),
        "OffsetOutOfRangeError": (8, 1),
        "RebalanceInProgressError": (8, 1),
        "RecordDeserializationError": (8, 1),
        "RetriableCommitFailedError": (8, 1),
        "UnreleasedInstanceIdError": (8, 1),
        "WakeupError": (8, 1),
    },
    "kops.client.consumer.faces.driving": {
        "ListenerError": (8, 1),
    },
    "kops.client.errors": {
        "AdminClosedError": (8, 1),
        "BatchRejectedError": (8, 1),
        "BufferExhaustedError": (8, 1),
        "ClusterAuthorizationError": (8, 1),
        "CommitFailedError": (8, 1),
        "FencedInstanceIdError": (8, 1),
        "GroupAuthorizationError": (8, 1),
        "GroupIdNotFoundError": (8, 1),
        "GroupNotEmptyError": (8, 1),
        "InvalidConfigurationError": (8, 1),
        "InvalidPartitionsError": (8, 1),
        "InvalidPidMappingError": (8, 1),
        "InvalidProducerEpochError": (8, 1),
        "InvalidRecordError": (8, 1),
        "InvalidReplicaAssignmentError": (8, 1),
        "InvalidReplicationFactorError": (8, 1),
        "InvalidRequestError": (8, 1),
        "InvalidTopicError": (8, 1),
        "InvalidTxnStateError": (8, 1),
        "KafkaError": (8, 1),
        "KafkaTimeoutError": (8, 1),
        "OutOfOrderSequenceError": (8, 1),
        "PolicyViolationError": (8, 1),
        "ProducerClosedError": (8, 1),
        "ProducerFencedError": (8, 1),
        "RecordTooLargeError": (8, 1),
        "SerializationError": (8, 1),
        "TopicAuthorizationError": (8, 1),
        "TopicExistsError": (8, 1),
        "TransactionAbortableError": (8, 1),
        "TransactionAbortedError": (8, 1),
        "TransactionalIdAuthorizationError": (8, 1),
        "UnknownProducerIdError": (8, 1),
        "UnknownTopicIdError": (8, 1),
        "UnknownTopicOrPartitionError": (8, 1),
        "UnsupportedVersionError": (8, 1),
        "_OwnError": (8, 1),
    },
    "kops.forensics.evidence.contents": {
        "CaseWriteError": (8, 1),
    },
    "kops.spark.source.ranges": {
        "DataLossError": (8, 1),
    },
    "kops.cli.printing.sink": {"OutputError": (8, 1)},
    "kops.files.api": {"ReadOnlyError": (8, 1)},
    "kops.forensics.plans.journal": {"ChangedSinceError": (8, 1)},
    "kops.records.log_offsets": {"UnexpectedAppendOffsetError": (8, 1)},
    "kops.records.streams.messages": {"InnerSizeError": (8, 1)},
    "kops.storage.cleaning.cleaner": {"CleaningAbortedError": (8, 1)},
    "kops.storage.cleaning.cleaner_manager": {"UncleanableError": (8, 1)},
    "kops.storage.manager.live_log_dirs": {"LogDirsFailedError": (8, 1)},
    # What the log loader raises is an outcome for `forecast`. A person would see it only because of a bug.
    "kops.storage.failures.load_errors": {
        "CorruptIndexError": (8, 1),
        "CorruptRecordError": (8, 1),
        "CorruptSnapshotError": (8, 1),
        "InvalidOffsetError": (8, 1),
        "InvalidRecordError": (8, 1),
        "KafkaStorageError": (8, 1),
        "LoadError": (8, 1),
        "NoSuchFileError": (8, 1),
        "OffsetOutOfRangeError": (8, 1),
        "StorageIOError": (8, 1),
    },
    "kops.storage.log_append": {"OffsetsOutOfOrderError": (8, 1)},
    "kops.storage.segments.segment": {"SegmentOverflowError": (8, 1)},
}


def subclasses(of: type[KopsError]) -> Iterator[type[KopsError]]:
    yield of
    for one in of.__subclasses__():
        yield from subclasses(one)


def test_every_error_class_is_listed_with_its_codes() -> None:
    for module in pkgutil.walk_packages(package.__path__, "kops."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: dict[str, dict[str, tuple[int, int]]] = {}
    for kind in set(subclasses(KopsError)):
        if kind.__module__.startswith("kops."):
            error = kind.__new__(kind)
            found.setdefault(kind.__module__, {})[kind.__name__] = (exit_codes.of_error(error, LOG), exit_codes.of_error(error, ELSEWHERE))
    assert found == CODES


@pytest.mark.usefixtures("probes")
@pytest.mark.parametrize(
    ("how", "log_code", "plain_code", "words"),
    [
        ("usage", 16, 2, "--level no is not one of quick, crc"),
        ("decode", 8, 1, "x.log:17: the length is negative"),
        ("missing", 8, 3, "no such directory: x"),
        ("os", 8, 3, "No such file or directory: /nowhere/at all"),
        ("memory", 8, 1, "out of memory"),
        ("bug", 8, 1, "internal error, ZeroDivisionError: a bug (KOPS_DEBUG=1 shows where)"),
    ],
)
def test_an_error_is_one_line(kops: Kops, how: str, log_code: int, plain_code: int, words: str) -> None:
    for group, code in (("log", log_code), ("probe", plain_code)):
        ran = kops(group, "fail", how)
        assert ran.code == code
        assert ran.err == f"kops: error: {words}\n"
        assert ran.out == b"half\n"


@pytest.mark.usefixtures("probes")
def test_debug_shows_where(kops: Kops, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KOPS_DEBUG", "1")
    ran = kops("log", "fail", "bug")
    assert "Traceback" in ran.err
    assert "in fail" in ran.err
    assert ran.err.endswith("kops: error: internal error, ZeroDivisionError: a bug (KOPS_DEBUG=1 shows where)\n")


@pytest.mark.usefixtures("probes")
def test_an_error_in_the_middle_of_a_document_leaves_it_parseable(kops: Kops) -> None:
    import json

    ran = kops("log", "fail", "document", "--format", "json")
    assert ran.code == 8
    document = json.loads(ran.text.removeprefix("half\n"))
    assert document == {"schema": "kops.probe/v1", "first": 1, "rows": [{"number": 1}, {"number": 2}], "error": "no more"}


def test_a_process_ends_with_the_code_and_no_traceback() -> None:
    ran = kops_process("log", "fail", "bug")
    assert (ran.code, ran.out) == (8, b"half\n")
    assert ran.err == "kops: error: internal error, ZeroDivisionError: a bug (KOPS_DEBUG=1 shows where)\n"


def test_control_characters_in_words_are_escaped(kops: Kops) -> None:
    assert kops("\x1b[31mred").err == "kops: error: no such command: kops \\x1b[31mred (see kops --help)\n"
    ran = kops("log", "verify", "/no\nwhere")
    assert ran.err == "kops: error: /no\\nwhere: no such file or directory\n"
