"""`dump --format kafka` compared with Kafka's own tool on randomly damaged files, and on text that is not UTF-8."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from kops.files import OsFiles
from kops.forensics.dump.kafka_text import KafkaDump
from kops.forensics.dump.messages import PARSERS
from kops.forensics.dump.text import DumpOptions, DumpText
from kops.protocol.messages import ConsumerProtocolAssignment, ConsumerProtocolSubscription, GroupMetadataKey, GroupMetadataValue
from kops.protocol.record_values import write_coordinator_key, write_versioned
from kops.protocol.registry import GROUP_RECORDS, SHARE_RECORDS, TRANSACTION_RECORDS, message_class
from kops.records import BatchBuilder, crc32c
from tests.support import corpus
from tests.support.kafka.oracle import Oracle
from tests.support.requests.messages import random_message

SUFFIXES = (".log", ".checkpoint", ".index", ".timeindex", ".snapshot", ".txnindex")
LOG_MODES: tuple[list[str], ...] = (
    ["--deep-iteration", "--print-data-log"],
    ["--deep-iteration"],
    [],
    ["--print-data-log", "--skip-record-metadata"],
)
INDEX_MODES: tuple[list[str], ...] = ([], ["--verify-index-only"], ["--index-sanity-check"], ["--max-message-size", "100"])
OUT_OF_MEMORY = "!! java.lang.OutOfMemoryError"
TRIALS = 120


def options_of(flags: list[str]) -> DumpOptions:
    options = DumpOptions()
    for flag in flags:
        name = flag.removeprefix("--").replace("-", "_")
        if flag == "--max-message-size":
            options.max_message_size = 100
        elif flag.startswith("--"):
            setattr(options, name, True)
    return options


def compare(oracle: Oracle, path: Path, flags: list[str]) -> None:
    """Check that the outputs are equal, or equal up to the exception with which Kafka's tool ended."""
    pieces: list[bytes] = []
    text = DumpText(pieces.append, pieces.append)
    run = KafkaDump(OsFiles(read_only=True), options_of(flags), text)
    run.file(str(path))
    run.finish()
    ours = b"".join(pieces)
    content = path.read_bytes()
    expected = oracle.dump([*flags, "--files", str(path)])
    path.write_bytes(content)  # Kafka's tool trims an index
    ended, mark, exception = expected.rpartition("!! ")
    if mark and "\n" not in exception.rstrip("\n"):
        if (mark + exception).startswith(OUT_OF_MEMORY):
            return
        assert ours.startswith(ended.encode("utf-8", "surrogateescape")), (flags, exception)
        assert any(problem.ends_kafka for problem in text.problems), (flags, exception)
    else:
        assert ours == expected.encode("utf-8", "surrogateescape"), flags
        assert not any(problem.ends_kafka for problem in text.problems), flags


def damage(chance: random.Random, data: bytearray) -> None:
    """Make one random change."""
    place = chance.randrange(len(data))
    kind = chance.randrange(6)
    if kind < 2:
        data[place] ^= 1 << chance.randrange(8)
    elif kind == 2:
        data[place] = chance.choice([0, 255, 128, 127])
    elif kind == 3:
        del data[place : place + chance.randrange(1, 40)]
    elif kind == 4:
        data[place:place] = chance.randbytes(chance.randrange(1, 30))
    else:
        data[place : place + 50] = bytes(chance.randrange(50))


def mend_checksums(data: bytearray) -> None:
    """Correct the checksums, so that wrong contents have a right checksum."""
    position = 0
    while position + 61 <= len(data) and data[position + 16] == 2:
        end = position + 12 + int.from_bytes(data[position + 8 : position + 12], "big", signed=True)
        if not position + 61 <= end <= len(data):
            return
        data[position + 17 : position + 21] = crc32c(bytes(data[position + 21 : end])).to_bytes(4, "big")
        position = end


def folders() -> list[Path]:
    found = []
    for case_id in corpus.cases("format"):
        found += [path for path in (corpus.load(case_id).root / "data").iterdir() if path.is_dir()]
    found += [corpus.load("broker-damage-4.3.0-none-dynamic").root / "before/disk1/__cluster_metadata-0"]
    return sorted(found)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_files(oracle: Oracle, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    sources = folders()
    compared = 0
    while compared < TRIALS // 4:
        target = tmp_path / "trial"
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(chance.choice(sources), target, copy_function=corpus.copy_writable)
        names = [path for path in sorted(target.iterdir()) if path.suffix in SUFFIXES and path.stat().st_size]
        if not names:
            continue
        path = chance.choice([*names, *(name for name in names if name.suffix == ".log")])
        path.chmod(0o600)
        data = bytearray(path.read_bytes())
        for _ in range(chance.choice([1, 1, 2, 4])):
            if data:
                damage(chance, data)
        if chance.random() < 0.5:
            mend_checksums(data)
        path.write_bytes(bytes(data))
        looked_at = chance.choice([path, *(name for name in names if name.stem == path.stem and name.stat().st_size)])
        compare(oracle, looked_at, chance.choice(LOG_MODES if looked_at.suffix in (".log", ".checkpoint") else INDEX_MODES))
        compared += 1


def test_text_that_is_no_utf8(oracle: Oracle, tmp_path: Path) -> None:
    """kops uses as many replacement characters for malformed bytes as Java does."""
    chance = random.Random(1)
    pool = [
        0x00,
        0x0A,
        0x41,
        0x7F,
        0x80,
        0x8F,
        0x90,
        0x9F,
        0xA0,
        0xBF,
        0xC0,
        0xC1,
        0xC2,
        0xDF,
        0xE0,
        0xE1,
        0xED,
        0xEF,
        0xF0,
        0xF1,
        0xF4,
        0xF5,
        0xF8,
        0xFF,
    ]
    builder = BatchBuilder()
    for _ in range(4000):
        builder.append(1, None, bytes(chance.choices(pool, k=chance.randrange(7))), [("é", b"")] if chance.random() < 0.1 else [])
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(builder.build())
    compare(oracle, path, ["--print-data-log"])


@pytest.mark.parametrize("codec", ["none", "lz4"])
def test_records_of_one_layout_and_of_many(oracle: Oracle, tmp_path: Path, codec: str) -> None:
    chance = random.Random(2)
    data = b""
    offset = 0
    for number in range(12):
        builder = BatchBuilder(codec=codec, base_offset=offset, producer_id=5, producer_epoch=1, base_sequence=0x7FFFFFFF - 40 * number)
        for index in range(300):
            builder.append(1_700_000_000_000 + index * chance.choice([0, 1, 3000]) * number, b"key", b"v" * (100 if index % 70 else number))
        data += builder.build()
        offset += 300 + number
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(data)
    compare(oracle, path, ["--print-data-log", "--deep-iteration"])


@pytest.mark.parametrize("decoder", ["IntegerDecoder", "LongDecoder", "StringDecoder"])
def test_kafkas_decoders(oracle: Oracle, tmp_path: Path, decoder: str) -> None:
    from kops.forensics.dump.decoders import find_decoder

    builder = BatchBuilder(base_offset=0)
    for value in (0, 1, -1, 1 << 62, -(1 << 63)):
        builder.append(1, b"k", value.to_bytes(8, "big", signed=True))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(builder.build())
    name = f"org.apache.kafka.tools.api.{decoder}"
    pieces: list[bytes] = []
    options = DumpOptions(print_data_log=True, value_decoder=find_decoder(name, "--value-decoder-class"))
    run = KafkaDump(OsFiles(read_only=True), options, DumpText(pieces.append, pieces.append))
    run.file(str(path))
    run.finish()
    assert b"".join(pieces).decode() == oracle.dump(["--value-decoder-class", name, "--files", str(path)])


DECODERS = {
    "offsets-decoder": ("offsets", GROUP_RECORDS),
    "transaction-log-decoder": ("transaction-log", TRANSACTION_RECORDS),
    "share-group-state-decoder": ("share-group-state", SHARE_RECORDS),
}


def records_of_every_type(types: Mapping[int, str], seeds: int) -> Iterator[tuple[bytes, bytes | None]]:
    """Yield keys and values of all types and versions, and keys with a tombstone."""
    for number, name in types.items():
        value = message_class(f"{name}Value")
        for seed in range(seeds):
            key = number.to_bytes(2, "big") + random_message(message_class(f"{name}Key"), 0, seed).encode(0)
            yield key, None
            for version in value.VERSIONS:
                yield key, write_versioned(random_message(value, version, seed), version)
    yield (99).to_bytes(2, "big") + b"a later type", b"value"


def classic_group(chance: random.Random, seed: int) -> tuple[bytes, bytes]:
    """Return the record of a group of consumers, whose members have subscriptions and assignments that can be read, or not."""
    group = random_message(GroupMetadataValue, 4, seed)
    assert isinstance(group, GroupMetadataValue)
    group.protocol_type = "consumer"
    for member in group.members:
        written = []
        for declared in (ConsumerProtocolSubscription, ConsumerProtocolAssignment):
            version = chance.choice(declared.VERSIONS)
            written.append(chance.choice((b"", b"\x00", write_versioned(random_message(declared, version, seed), version))))
        member.subscription, member.assignment = written
    return write_coordinator_key(GroupMetadataKey("consumers")), write_versioned(group, 4)


@pytest.mark.parametrize("flag", DECODERS)
def test_every_record_of_internal_topics(oracle: Oracle, tmp_path: Path, flag: str) -> None:
    name, types = DECODERS[flag]
    chance = random.Random(3)
    builder = BatchBuilder()
    for key, value in records_of_every_type(types, 3):
        builder.append(1, key, value)
    for seed in range(20 if types is GROUP_RECORDS else 0):
        builder.append(1, *classic_group(chance, seed))
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(builder.build())
    pieces: list[bytes] = []
    run = KafkaDump(OsFiles(read_only=True), DumpOptions(print_data_log=True, parser=PARSERS[name]), DumpText(pieces.append, pieces.append))
    run.file(str(path))
    run.finish()
    ours, theirs = b"".join(pieces).decode().splitlines(), oracle.dump([f"--{flag}", "--files", str(path)]).splitlines()
    for line, expected in zip(ours, theirs, strict=True):
        assert line == expected


def test_words_about_many_files_come_in_kafkas_order(oracle: Oracle, tmp_path: Path) -> None:
    """Kafka takes them out of a hash map."""
    paths = []
    for number in range(40):
        path = tmp_path / f"{number * 7:020d}.log"
        builder = BatchBuilder(base_offset=number * 7)
        builder.append(1, None, b"")
        path.write_bytes(builder.build())
        paths.append(str(path))
    pieces: list[bytes] = []
    run = KafkaDump(OsFiles(read_only=True), DumpOptions(deep_iteration=True), DumpText(pieces.append, pieces.append))
    for name in paths:
        run.file(name)
    run.finish()
    assert b"".join(pieces).decode() == oracle.dump(["--deep-iteration", "--files", ",".join(paths)])
