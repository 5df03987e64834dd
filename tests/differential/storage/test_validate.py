"""Kafka's own `LogValidator` beside ours: both write the same, and reject the same with the same words."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.errors import ApiError
from kops.records import Batch
from kops.records.validation.validate import AppendOrigin, ValidatedRecords, ValidationRules, validate_records
from tests.fuzz.records_worker import with_right_checksums
from tests.support.kafka.oracle import Oracle
from tests.support.logs.large_batches import MIB, large_batch
from tests.support.logs.twins.validating import Sent, broken_stream, header, random_append, snappy_stream

INTERNAL = "org.apache.kafka.common.record.internal"
LOG = "org.apache.kafka.storage.internals.log"
FIRST, EPOCH = 1000, 7
METERS = {
    "magic": "invalidMagicNumberRecordsPerSec",
    "checksum": "invalidMessageCrcRecordsPerSec",
    "no-key": "noKeyCompactedTopicRecordsPerSec",
    "offset": "invalidOffsetOrSequenceRecordsPerSec",
}
HEAP_SPACE = "UNKNOWN_SERVER_ERROR: Java heap space"
NOW_MS = 1_760_000_000_000
"""A seed gives the same streams at any time."""
RANGE = re.compile(r"should be within \[(-?\d+), (-?\d+)\]")


@dataclass
class Answer:
    """Kafka's result of an append. `now` is the time that Kafka used, if the result shows it."""

    now: int | None
    error: str | None = None
    errors: str = ""
    data: bytes = b""
    numbers: tuple[object, ...] = ()


class JavaValidator:
    """Kafka's LogValidator with the machine's clock. Its answer shows which time it used."""

    def __init__(self, oracle: Oracle) -> None:
        self.oracle = oracle
        java = oracle.java_class
        self.make = java(f"{LOG}.LogValidator")
        self.place = java("org.apache.kafka.common.TopicPartition")("orders", 0)
        self.time = java("org.apache.kafka.common.utils.Time").SYSTEM
        self.records = java(f"{INTERNAL}.MemoryRecords").readableRecords
        self.wrap = java("java.nio.ByteBuffer").wrap
        self.codec = java(f"{INTERNAL}.CompressionType").forId
        self.compression = java("org.apache.kafka.common.compress.Compression")
        kinds = java("org.apache.kafka.common.record.TimestampType")
        self.kinds = {"CreateTime": kinds.CREATE_TIME, "LogAppendTime": kinds.LOG_APPEND_TIME}
        origins = java(f"{LOG}.AppendOrigin")
        self.origins = {name: getattr(origins, name) for name in ("CLIENT", "COORDINATOR")}
        self.meters = oracle.jvm.org.apache.kafka.storage.log.metrics.BrokerTopicStats().allTopicsStats()
        self.recorder = java(f"{LOG}.UnifiedLog").newValidatorMetricsRecorder(self.meters)
        self.supplier = java("org.apache.kafka.common.utils.BufferSupplier").NO_CACHING
        self.reference = java("org.apache.kafka.common.utils.PrimitiveRef").ofLong
        self.errors = java("org.apache.kafka.common.protocol.Errors")

    def target(self, sent: Sent, source: int) -> Any:
        rules = sent.rules
        match rules.compression_type:
            case "producer":
                return self.compression.of(self.codec(source)).build()
            case "uncompressed":
                return self.compression.NONE
            case "gzip":
                return self.compression.gzip().level(rules.gzip_level).build()
            case "lz4":
                return self.compression.lz4().level(rules.lz4_level).build()
            case "zstd":
                return self.compression.zstd().level(rules.zstd_level).build()
            case _:
                return self.compression.snappy().build()

    def validate(self, sent: Sent) -> Answer:
        source = 0
        for batch in sent.batches():
            if source < 5:  # Kafka looks at them in order, and fails at the first one that it does not know
                source = batch.attributes & 7 or source
        rules = sent.rules
        offset = self.reference(FIRST)
        try:
            validator = self.make(
                self.records(self.wrap(sent.data)),
                self.place,
                self.time,
                self.codec(source),
                self.target(sent, source),
                rules.compacted,
                rules.magic,
                self.kinds[rules.timestamp_type],
                rules.timestamp_before_max_ms,
                rules.timestamp_after_max_ms,
                EPOCH,
                self.origins[sent.origin.name],
            )
            result = validator.validateMessagesAndAssignOffsets(offset, self.recorder, self.supplier)
        except Py4JJavaError as error:
            return self.refused(error.java_exception, sent)
        buffer = result.validatedRecords().buffer()
        begin = buffer.arrayOffset()
        stats = result.recordValidationStats()
        numbers = (get_field(offset, "value"), result.maxTimestampMs(), result.messageSizeMaybeChanged(), stats.numRecordsConverted())
        return Answer(
            result.logAppendTimeMs(),
            data=bytes(buffer.array())[begin : begin + buffer.limit()],
            numbers=(*numbers, stats.temporaryMemoryBytes()),
        )

    def refused(self, error: Any, sent: Sent) -> Answer:
        errors = ""
        if error.getClass().getSimpleName() == "RecordValidationException":
            errors = str(error.recordErrors().toString())
            error = error.invalidException()
        within = RANGE.search(errors)
        now = wrapped(int(within[2]) - sent.rules.timestamp_after_max_ms) if within else None
        return Answer(now, f"{self.errors.forException(error).name()}: {error.getMessage()}", errors)


def wrapped(value: int) -> int:
    return (value + (1 << 63)) % (1 << 64) - (1 << 63)


def check(java: JavaValidator, sent: Sent, counted: Counter[str]) -> str:
    """Check that both answer one append alike. Return a word for what happened."""
    theirs = java.validate(sent)
    now = java.time.milliseconds() if theirs.now is None else theirs.now

    def count(kind: str) -> None:
        counted[kind] += 1

    try:
        ours = validate_records(
            sent.data,
            sent.batches(),
            sent.rules,
            first_offset=FIRST,
            now_ms=now,
            leader_epoch=EPOCH,
            origin=sent.origin,
            count_invalid=count,
        )
    except ApiError as error:
        name, _, message = (theirs.error or "none: ").partition(": ")
        if theirs.error == HEAP_SPACE:
            return "a lying size"
        assert error.name == name, (error, theirs.error)
        listed = ", ".join(f"RecordError(batchIndex={index}, message='{text}')" for index, text in error.record_errors)
        assert (f"[{listed}]" if listed else "") == theirs.errors
        if listed:
            assert error.message == message
        return name
    if theirs.error == HEAP_SPACE:
        return "a lying size"
    assert theirs.error is None, theirs.error
    same_result(ours, theirs, sent)
    return f"{'rebuilt' if ours.size_changed else 'in place'} v{sent.data[16]} to v{sent.rules.magic}"


def same_result(ours: ValidatedRecords, theirs: Answer, sent: Sent) -> None:
    numbers = (ours.next_offset, ours.max_timestamp, ours.size_changed, ours.converted_count)
    assert numbers == theirs.numbers[:4]
    if sent.rules.timestamp_type == "LogAppendTime":
        assert ours.log_append_time_ms == theirs.now
    else:
        assert ours.log_append_time_ms == -1
    # Kafka counts the sizes that records claim. kops does not look at them in batches that stay compressed.
    assert ours.temporary_memory_bytes == theirs.numbers[4] or ours.batches[0].check()
    assert b"".join(bytes(batch.data()) for batch in ours.batches) == ours.data
    if not ours.size_changed or not any(batch.compressed for batch in ours.batches):
        assert ours.data == theirs.data
        return
    (batch,) = ours.batches
    other = Batch(theirs.data)
    assert batch.crc_ok and batch.magic == other.magic
    if batch.magic > 1:
        assert header(batch) == header(other)
    else:
        assert (batch.last_offset, batch.attributes, batch.max_timestamp) == (other.last_offset, other.attributes, other.max_timestamp)
    assert all(record == same for record, same in zip(batch.iterate(), other.iterate(), strict=True))


def run(oracle: Oracle, seed: int, count: int) -> Counter[str]:
    rng = random.Random(seed)
    java = JavaValidator(oracle)
    seen: Counter[str] = Counter()
    counted: Counter[str] = Counter()
    before = metered(java)
    for number in range(count):
        sent = random_append(rng, java.time.milliseconds())
        try:
            seen[check(java, sent, counted)] += 1
        except AssertionError as error:
            error.add_note(f"append {number} of seed {seed}: {sent.rules} {sent.origin} {sent.data.hex()}")
            raise
    # If Kafka gave up for lack of memory, it counted fewer of the records (at most 20) of that batch.
    slack = 20 * seen["a lying size"]
    for kind, total in metered(java).items():
        ours = counted[kind] + (counted["sequence"] if kind == "offset" else 0)
        assert abs(total - before[kind] - ours) <= slack and ours > 0, kind
    return seen


def metered(java: JavaValidator) -> dict[str, int]:
    """Return Kafka's meters of invalid records. They belong to the process, so they include appends of other tests."""
    return {kind: getattr(java.meters, name)().count() for kind, name in METERS.items()}


def broken(oracle: Oracle, seed: int, count: int, make: Callable[[random.Random, int], bytes] = broken_stream) -> Counter[str]:
    """Compare both answers to batches with broken compressed streams, which Kafka reads piece by piece."""
    rng = random.Random(seed)
    java = JavaValidator(oracle)
    seen: Counter[str] = Counter()
    for number in range(count):
        rules = ValidationRules("orders-0", compacted=False, compression_type=rng.choice(("producer", "producer", "lz4", "uncompressed")))
        sent = Sent(make(rng, NOW_MS), rules, AppendOrigin.CLIENT)
        try:
            seen[check(java, sent, Counter())] += 1
        except AssertionError as error:
            error.add_note(f"stream {number} of seed {seed}: {rules} {sent.data.hex() if len(sent.data) < 5000 else len(sent.data)}")
            raise
    return seen


def test_a_bad_record_in_front_of_the_place_where_a_stream_breaks(oracle: Oracle) -> None:
    seen = broken(oracle, 3, 80)
    assert {"INVALID_RECORD", "UNKNOWN_SERVER_ERROR"} < set(seen)


@pytest.mark.slow
def test_many_broken_streams(oracle: Oracle, seed_count: int | None) -> None:
    broken(oracle, 4, seed_count or 1800)


def test_snappy_streams_with_a_wrong_header_in_the_middle(oracle: Oracle) -> None:
    """Some of Kafka's reads end there, and some continue."""
    seen = broken(oracle, 5, 100, snappy_stream)
    assert {"in place v2 to v2", "rebuilt v2 to v2", "INVALID_RECORD", "UNKNOWN_SERVER_ERROR"} < set(seen)


@pytest.mark.slow
def test_many_snappy_streams_with_a_wrong_header(oracle: Oracle, seed_count: int | None) -> None:
    broken(oracle, 6, seed_count or 1500, snappy_stream)


def test_both_answer_random_appends_alike(oracle: Oracle) -> None:
    seen = run(oracle, 1, 250)
    assert {"INVALID_RECORD", "INVALID_TIMESTAMP"} < set(seen)


@pytest.mark.slow
def test_both_answer_thousands_of_random_appends_alike(oracle: Oracle, seed_count: int | None) -> None:
    seen = run(oracle, 2, seed_count or 3000)
    kinds = {f"{how} v{old} to v{new}" for how, old, new in (("in place", 2, 2), ("rebuilt", 2, 2), ("rebuilt", 1, 2), ("rebuilt", 0, 2))}
    assert kinds | {"CORRUPT_MESSAGE", "UNSUPPORTED_FOR_MESSAGE_FORMAT", "UNKNOWN_SERVER_ERROR"} < set(seen)


@pytest.mark.slow
@pytest.mark.parametrize("codec", ["lz4", "zstd"])
def test_a_batch_of_more_than_128_mib(oracle: Oracle, codec: str) -> None:
    """A batch is taken in place, recompressed, and with one record less than its header claims."""
    java = JavaValidator(oracle)
    data = large_batch(codec, 2, 140 * MIB, 4 * MIB)
    claiming = bytearray(data)
    claiming[57:61] = (35 + 1).to_bytes(4, "big")
    for sent, expected in (
        (as_sent(data, "producer"), "in place v2 to v2"),
        (as_sent(data, "zstd" if codec == "lz4" else "lz4"), "rebuilt v2 to v2"),
        (as_sent(with_right_checksums(bytes(claiming)), "producer"), "INVALID_RECORD"),
    ):
        assert check(java, sent, Counter()) == expected


def as_sent(data: bytes, compression_type: str) -> Sent:
    """Return a client's append to a topic with this `compression.type`."""
    return Sent(data, ValidationRules("orders-0", compacted=False, compression_type=compression_type), AppendOrigin.CLIENT)
