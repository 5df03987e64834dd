"""kops's readers and writers of storage files compared with the Java classes that they follow, on random and damaged input."""

from __future__ import annotations

import os
import random
import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from kops.config.topic import TOPIC_CONFIG_DEF, TopicConfig, topic_config
from kops.config.values.definition import Kind, _parse
from kops.config.values.java import parse_int, parse_long
from kops.config.values.java_hash import store_order, string_hash
from kops.config.values.properties import read_properties, write_properties
from kops.config.values.topic_names import is_topic_name
from kops.errors import DecodeError, UsageError
from kops.storage.formats import names
from kops.storage.formats.checkpoints import read_offset_checkpoint
from kops.storage.formats.clean_shutdown import read_clean_shutdown
from kops.storage.formats.kafka_uuid import parse_uuid
from kops.storage.formats.leader_epoch_checkpoint import EpochEntry, effective_epochs, read_leader_epoch_checkpoint
from kops.storage.formats.meta_properties import read_meta_properties
from kops.storage.formats.partition_metadata import read_partition_metadata
from kops.storage.formats.producer_snapshot import ProducerSnapshotEntry, read_producer_snapshot, write_producer_snapshot
from kops.storage.formats.quorum_state import read_quorum_state
from kops.storage.segment_files.offset_index import OffsetIndex
from kops.storage.segment_files.time_index import TimeIndex
from kops.storage.segment_files.transaction_index import read_transaction_index
from tests.support.kafka.oracle import Oracle

LOG = "org.apache.kafka.storage.internals.log"
CHECKPOINT = "org.apache.kafka.storage.internals.checkpoint"
DOUBLES = "NaN -NaN +Infinity Infinity inf nan 1d 1.5F .5 5. . 1e3 1e 1_0 0x1p3 0x.8p1 0x1.p0 0x1 0x1p 1e999 -1e999 0x1p9999"
STORAGE_EXCEPTION = "org.apache.kafka.common.errors.KafkaStorageException"


def java(call: Callable[..., Any], *arguments: object) -> tuple[Any, str | None]:
    """Return the result of Java, or the class of its exception."""
    try:
        return call(*arguments), None
    except Py4JJavaError as error:
        return None, str(error.java_exception.getClass().getName())


def ours(call: Callable[..., Any], *arguments: object) -> tuple[Any, str | None]:
    """Return the result of kops, or the code of its DecodeError."""
    try:
        return call(*arguments), None
    except DecodeError as error:
        return None, error.code


def cached_epochs(data: bytes) -> list[EpochEntry]:
    return effective_epochs(read_leader_epoch_checkpoint(data))


def mutated(source: random.Random, data: bytes, alphabet: bytes) -> bytes:
    """Return the data with up to four bytes changed, removed or inserted, or cut short."""
    changed = bytearray(data)
    for _ in range(source.randrange(5)):
        at = source.randrange(len(changed) + 1)
        kind = source.randrange(3)
        if kind == 0:
            changed[at:at] = bytes([source.choice(alphabet)])
        elif kind == 1:
            del changed[at : at + source.randrange(1, 4)]
        else:
            changed[at : at + 1] = bytes([source.choice(alphabet)])
    if source.random() < 0.1:
        del changed[source.randrange(len(changed) + 1) :]
    return bytes(changed)


def test_properties(oracle: Oracle) -> None:
    source = random.Random(1)
    alphabet = b"\\\\\\\\\n\n\r\t\f  =:#!uabtnrf00419\xe4\xff"
    for number in range(1500):
        data = bytes(source.choice(alphabet) for _ in range(source.randrange(40)))
        properties = oracle.jvm.java.util.Properties()
        loaded = java(properties.load, oracle.jvm.java.io.ByteArrayInputStream(data))
        read, code = ours(read_properties, data)
        assert (loaded[1] is None) == (code is None), data
        if read is None:
            assert loaded[1] == "java.lang.IllegalArgumentException"
            continue
        escape_unicode = number % 2 == 0
        writer = oracle.jvm.java.io.ByteArrayOutputStream() if escape_unicode else oracle.jvm.java.io.StringWriter()
        properties.store(writer, None)
        text = str(writer.toString()).partition("\n")[2]
        assert write_properties({key: read[key] for key in store_order(read)}, escape_unicode=escape_unicode) == text, data


def test_order_of_many_properties(oracle: Oracle) -> None:
    source = random.Random(2)
    for count in (1, 11, 12, 13, 23, 24, 47, 48, 49, 200):
        keys = ["".join(source.choice("abc.é\U0001f600") for _ in range(6)) + str(i) for i in range(count)]
        properties = oracle.properties(dict.fromkeys(keys, ""))
        assert [string_hash(key) for key in keys[:3]] == [
            oracle.java_class("java.util.Objects").hashCode(key) & 0xFFFFFFFF for key in keys[:3]
        ]
        assert store_order(keys) == [str(key) for key in properties.keySet().toArray()]


def test_numbers(oracle: Oracle) -> None:
    source = random.Random(3)
    integer, long = (oracle.java_class(f"java.lang.{name}") for name in ("Integer", "Long"))
    texts = [
        "",
        "+",
        "-",
        "+-1",
        "0",
        "-0",
        "007",
        " 1",
        "1 ",
        "1_0",
        "\u0661",
        "\U0001d7d9",
        "2147483647",
        "2147483648",
        "-2147483648",
        "-2147483649",
    ]
    texts += ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "0" * 30 + "5", "1" * 30, "1" * 5000, "\uff11"]
    texts += ["".join(source.choice("+-0123456789 xe.") for _ in range(source.randrange(1, 5))) for _ in range(200)]
    for text in texts:
        for parse, oracle_parse in ((parse_int, integer.parseInt), (parse_long, long.parseLong)):
            expected, error = java(oracle_parse, text)
            if error is None:
                assert parse(text) == expected
            else:
                with pytest.raises(ValueError):
                    parse(text)


def test_doubles(oracle: Oracle) -> None:
    source = random.Random(33)
    double = oracle.java_class("java.lang.Double")
    doubles = DOUBLES.split()
    doubles += ["1.0L", "\t1.5 ", "1,5", "--1", "1e+5", "1E-5d", "Infinityd", "\u0661", "0x1P-3f"]
    doubles += ["".join(source.choice("+-.0123eEdxp") for _ in range(source.randrange(1, 6))) for _ in range(200)]
    for text in doubles:
        expected, error = java(double.parseDouble, text)
        if error is None:
            value = _parse(text, "double")
            assert value == expected or (value != value and expected != expected), text
        else:
            with pytest.raises(ValueError):
                _parse(text, "double")


def test_names_of_directories_and_files(oracle: Oracle) -> None:
    source = random.Random(4)
    parse = oracle.java_class(f"{LOG}.LocalLog").parseTopicPartitionName
    offset = oracle.java_class(f"{LOG}.LogFileUtils").offsetFromFileName
    topic = oracle.java_class("org.apache.kafka.common.internals.Topic")
    pieces = [
        "a",
        "orders",
        "-",
        "-",
        ".",
        "0",
        "1",
        "12",
        "+3",
        "-delete",
        "-future",
        "-stray",
        ".x",
        " ",
        "\u00a0",
        "\u0662",
        "2147483648",
        "_",
        "\t",
    ]
    for _ in range(600):
        name = "".join(source.choice(pieces) for _ in range(source.randrange(1, 7)))
        expected, error = java(parse, oracle.jvm.java.io.File("/data", name))
        read, code = ours(names.parse_partition_dir, name)
        assert (error is None) == (code is None), name
        if error is None:
            assert (read.topic, read.partition) == (expected.topic(), expected.partition()), name
        expected, error = java(offset, name + ".log")
        assert (expected, error is None) == (ours(names.offset_from_file_name, name + ".log")[0], expected is not None), name
        assert topic.isValid(name) == (is_topic_name(name)), name
    for value in (0, 42, 2**63 - 1):
        file = oracle.java_class(f"{LOG}.LogFileUtils").logFile(oracle.jvm.java.io.File("/"), value, ".swap")
        assert names.log_file_name(value, "log", ".swap") == file.getName()


def test_uuids(oracle: Oracle) -> None:
    source = random.Random(5)
    from_string = oracle.java_class("org.apache.kafka.common.Uuid").fromString
    for _ in range(500):
        text = "".join(source.choice("AZaz09-_") for _ in range(source.choice((21, 22, 22, 22, 22, 23, 24)))) + "=" * source.choice(
            (0, 0, 0, 1, 2, 3)
        )
        if source.random() < 0.2:
            text = text.replace(source.choice(text), source.choice("+/= é"), 1)
        expected, error = java(from_string, text)
        try:
            assert parse_uuid(text) == expected.toString(), text
        except ValueError:
            assert error is not None, text


def index_bytes(source: random.Random, entry: struct.Struct) -> bytes:
    """Return an index with sorted, unsorted or damaged entries, perhaps followed by zeros or a part of an entry."""
    count = source.choice((0, 1, 2, 5, 40, 1500, 3000))
    values = [[source.randrange(-5, 5000) for _ in range(count)] for _ in range(2)]
    if source.random() < 0.7:
        values = [sorted(column) for column in values]
    data = b"".join(entry.pack(*fields) for fields in zip(*values, strict=True))
    return data + bytes(source.choice((0, 0, 0, entry.size * 3, entry.size * 900, 5)))


def test_offset_index(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(6)
    for number in range(120):
        data = index_bytes(source, struct.Struct(">ii"))
        path = tmp_path / f"{number}.index"
        path.write_bytes(data)
        base = source.choice((0, 100, 2**63 - 3000))
        index = OffsetIndex(base, data)
        real = oracle.java_class(f"{LOG}.OffsetIndex")(oracle.jvm.java.io.File(str(path)), base, 1 << 20)
        assert (index.entries, index.last_offset) == (real.entries(), real.lastOffset())
        error = java(real.sanityCheck)[1]
        assert (ours(index.sanity_check)[1], error) in ((None, None), ("corrupt-offset-index", f"{LOG}.CorruptIndexException"))
        position = oracle.java_class(f"{LOG}.OffsetPosition")
        for _ in range(12):
            target = source.randrange(-10, 5010)
            offset = min(base + target, 2**63 - 1)
            found = real.lookup(offset)
            assert index.lookup(offset) == (found.offset(), found.position())
            above = real.fetchUpperBoundOffset(position(base, target), 3)
            ours_above = index.upper_bound(target + 3)
            assert ours_above == ((above.get().offset(), above.get().position()) if above.isPresent() else None)
        target = min(base + source.randrange(-10, 5010), 2**63 - 1)
        if target >= base:
            real.truncateTo(target)
            cut = index.truncated_to(target)
            assert (cut.entries, cut.last_offset) == (real.entries(), real.lastOffset())
        real.closeHandler()


def test_time_index(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(7)
    for number in range(120):
        data = index_bytes(source, struct.Struct(">qi"))
        path = tmp_path / f"{number}.timeindex"
        path.write_bytes(data)
        base = source.choice((0, 100, 2**63 - 3000))
        index = TimeIndex(base, data)
        real = oracle.java_class(f"{LOG}.TimeIndex")(oracle.jvm.java.io.File(str(path)), base, 1 << 20)
        assert (index.entries, index.last_entry) == (real.entries(), (real.lastEntry().timestamp(), real.lastEntry().offset()))
        error = java(real.sanityCheck)[1]
        assert (ours(index.sanity_check)[1], error) in ((None, None), ("corrupt-time-index", f"{LOG}.CorruptIndexException"))
        for _ in range(12):
            target = source.randrange(-10, 5010)
            found = real.lookup(target)
            assert index.lookup(target) == (found.timestamp(), found.offset())
        target = min(base + source.randrange(0, 5010), 2**63 - 1)
        real.truncateTo(target)
        cut = index.truncated_to(target)
        assert (cut.entries, cut.last_entry.offset) == (real.entries(), real.lastEntry().offset())
        real.closeHandler()


def test_transaction_index(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(8)
    for number in range(60):
        data = bytearray(b"".join(struct.pack(">hqqqq", 0, *(source.randrange(100) for _ in range(4))) for _ in range(source.randrange(4))))
        if data and source.random() < 0.6:
            data[source.choice((0, 1, len(data) // 34 * 34 - 34))] = source.randrange(256)
        data += bytes(source.choice((0, 0, 33)))
        path = tmp_path / f"{number}.txnindex"
        path.write_bytes(data)
        real = oracle.java_class(f"{LOG}.TransactionIndex")(0, oracle.jvm.java.io.File(str(path)))
        listed, error = java(real.allAbortedTxns)
        read, code = ours(read_transaction_index, bytes(data))
        assert (error, code) in ((None, None), ("org.apache.kafka.common.KafkaException", "transaction-index-version"))
        if read is not None:
            texts = [
                f"AbortedTxn(version={t.version}, producerId={t.producer_id}, firstOffset={t.first_offset}, lastOffset={t.last_offset}, "
                f"lastStableOffset={t.last_stable_offset})"
                for t in read
            ]
            assert texts == [txn.toString() for txn in listed]
        real.close()


def test_producer_snapshot(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(9)
    read_real = oracle.java_class(f"{LOG}.ProducerStateManager").readSnapshot
    path = tmp_path / "1.snapshot"
    for _ in range(150):
        entries = [
            ProducerSnapshotEntry(source.randrange(9), 1, 2, source.randrange(-1, 9), 0, 5, 6, source.randrange(-1, 9))
            for _ in range(source.randrange(4))
        ]
        data = write_producer_snapshot(entries)
        if source.random() < 0.7:
            data = mutated(source, data, bytes(range(256)))
        path.write_bytes(data)
        listed, error = java(read_real, oracle.jvm.java.io.File(str(path)))
        read, code = ours(read_producer_snapshot, data)
        assert (error is None) == (code is None), data
        if read is not None:
            assert [(entry.producer_id, entry.last_offset) for entry in read] == [(e.producerId(), e.lastDataOffset()) for e in listed]
        else:
            assert error == f"{LOG}.CorruptSnapshotException"


def test_checkpoints(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(10)
    partition = oracle.java_class("org.apache.kafka.common.TopicPartition")
    path = tmp_path / "checkpoint"
    data = b"0\n3\norders 0 42\na-b 11 7\nuser_events 3 0\n"
    alphabet = b"0019 \n\r\t+-x\xff\xc3\xa4\x0b"
    for _ in range(400):
        changed = mutated(source, data, alphabet)
        path.write_bytes(changed)
        failures = oracle.java_class(f"{LOG}.LogDirFailureChannel")(1)
        file = oracle.java_class(f"{CHECKPOINT}.OffsetCheckpointFile")(oracle.jvm.java.io.File(str(path)), failures)
        offsets, error = java(file.read)
        read, code = ours(read_offset_checkpoint, changed)
        kinds = {None: None, STORAGE_EXCEPTION: "checkpoint-malformed"}
        assert kinds.get(error, "checkpoint-number") == code, (changed, error)
        if read is not None:
            assert len(read) == offsets.size()
            assert all(offsets.get(partition(*place)) == offset for place, offset in read.items()), changed


def test_leader_epochs(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(11)
    path = tmp_path / "t-0" / "leader-epoch-checkpoint"
    path.parent.mkdir()
    scheduler = oracle.shared("org.apache.kafka.server.util.KafkaScheduler", 1)
    place = oracle.java_class("org.apache.kafka.common.TopicPartition")("t", 0)
    for _ in range(200):
        entries = [
            EpochEntry(source.randrange(-1 if source.random() < 0.05 else 0, 6), source.randrange(0, 9)) for _ in range(source.randrange(6))
        ]
        data = f"0\n{len(entries)}\n".encode() + b"".join(b"%d %d\n" % entry for entry in entries)
        if source.random() < 0.3:
            data = mutated(source, data, b"019 \n-x\xff")
        path.write_bytes(data)
        failures = oracle.java_class(f"{LOG}.LogDirFailureChannel")(1)
        file = oracle.java_class(f"{CHECKPOINT}.LeaderEpochCheckpointFile")(oracle.jvm.java.io.File(str(path)), failures)
        make = oracle.java_class("org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache")
        cache, error = java(make, place, file, scheduler)
        kept, code = ours(cached_epochs, data)
        kinds = {
            None: (None,),
            STORAGE_EXCEPTION: ("checkpoint-malformed",),
            "java.lang.IllegalArgumentException": ("epoch-negative", "checkpoint-number"),
        }
        assert code in kinds.get(error, ("checkpoint-number",)), (data, error)
        if kept is not None:
            assert kept == [(entry.epoch(), entry.startOffset()) for entry in cache.epochEntries()], data


def test_partition_metadata(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(12)
    path = tmp_path / "t-0" / "partition.metadata"
    path.parent.mkdir()
    data = b"version: 0\ntopic_id: Ds3iqmQAgjvEyL7G37aV-w"
    for _ in range(300):
        changed = mutated(source, data, b"01:: \n\r=x-+\xff")
        path.write_bytes(changed)
        failures = oracle.java_class(f"{LOG}.LogDirFailureChannel")(1)
        file = oracle.java_class(f"{CHECKPOINT}.PartitionMetadataFile")(oracle.jvm.java.io.File(str(path)), failures)
        metadata, error = java(file.read)
        read, code = ours(read_partition_metadata, changed)
        kinds = {None: None, STORAGE_EXCEPTION: "partition-metadata-malformed"}
        assert kinds.get(error, "partition-metadata-invalid") == code, (changed, error)
        if read is not None:
            assert (read.version, read.topic_id) == (metadata.version(), metadata.topicId().toString())


def test_meta_properties(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(13)
    path = tmp_path / "meta.properties"
    utilities = oracle.java_class("org.apache.kafka.metadata.properties.PropertiesUtils")
    builder = oracle.java_class("org.apache.kafka.metadata.properties.MetaProperties$Builder")

    def load() -> Any:
        return builder(utilities.readPropertiesFile(str(path))).build()

    for _ in range(400):
        version, key = source.choice(((0, "broker.id"), (1, "node.id")))
        data = (
            f"#\n#Sat Nov 21 11:07:40 UTC 2026\n{key}=7\ndirectory.id=Ds3iqmQAgjvEyL7G37aV-w\nversion={version}\ncluster.id=c 1\n".encode()
        )
        changed = mutated(source, data, b"01:= \n\r\\ux#\xff")
        path.write_bytes(changed)
        meta, error = java(load)
        read, code = ours(read_meta_properties, changed)
        assert (error is None) == (code is None), changed
        if read is not None:
            shown = f"MetaProperties(version={read.version}"
            shown += "" if read.cluster_id is None else f", clusterId={read.cluster_id}"
            shown += "" if read.node_id is None else f", nodeId={read.node_id}"
            shown += "" if read.directory_id is None else f", directoryId={read.directory_id}"
            assert shown + ")" == meta.toString(), changed


def test_quorum_state(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(14)
    path = tmp_path / "quorum-state"
    static = (
        b'{"clusterId":"","leaderId":1,"leaderEpoch":7,"votedId":-1,"appliedOffset":0,"currentVoters":[{"voterId":1}],"data_version":0}'
    )
    dynamic = b'{"leaderId":1,"leaderEpoch":7,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    for _ in range(500):
        changed = mutated(source, source.choice((static, dynamic)), b'01"{}[],:. \n-ex\xff')
        path.write_bytes(changed)
        store = oracle.java_class("org.apache.kafka.raft.FileQuorumStateStore")(oracle.jvm.java.io.File(str(path)))
        state, error = java(store.readElectionState)
        read, code = ours(read_quorum_state, changed)
        assert (error is None) == (code is None), (changed, error)
        if read is not None:
            assert state.get().epoch() == read.leader_epoch


def test_clean_shutdown(oracle: Oracle, tmp_path: Path) -> None:
    source = random.Random(15)
    handler = oracle.java_class(f"{CHECKPOINT}.CleanShutdownFileHandler")(str(tmp_path))
    for _ in range(400):
        data = source.choice((b'{"version":0,"brokerEpoch":12}', b'{"brokerEpoch":"3","version":1.5,"x":[1,{}]}'))
        changed = mutated(source, data, b'01"{}[],:. \n-ex\xff')
        (tmp_path / ".kafka_cleanshutdown").write_bytes(changed)
        epoch = handler.read()
        assert read_clean_shutdown(changed).broker_epoch == (epoch.getAsLong() if epoch.isPresent() else None), changed


def test_topic_settings(oracle: Oracle) -> None:
    keys = oracle.java_class(f"{LOG}.LogConfig").configKeys()
    assert sorted(TOPIC_CONFIG_DEF.keys) == sorted(str(name) for name in keys.keySet().toArray())
    assert len(TOPIC_CONFIG_DEF.keys) == 34
    for name, key in TOPIC_CONFIG_DEF.keys.items():
        real = keys.get(name)
        kind: Kind = str(real.type().toString()).lower()  # type: ignore[assignment]
        assert key.kind == kind, name
        default = get_field(real, "defaultValue")
        assert key.default == (list(default) if kind == "list" else default), name
        assert key.internal == get_field(real, "internalConfig"), name


def test_values_of_topic_settings(oracle: Oracle) -> None:
    source = random.Random(16)
    real = oracle.java_class(f"{LOG}.LogConfig")
    values = [
        "",
        "0",
        "1",
        "-1",
        "-2",
        "-3",
        "4",
        "9",
        "10",
        "17",
        "18",
        "22",
        "23",
        "-131072",
        "-131073",
        "1048576",
        "1048575",
        "2147483648",
        "0.5",
        "1.1",
    ]
    values += [
        "NaN",
        "true",
        " FALSE ",
        "yes",
        "delete",
        "compact,delete",
        "compact , compact",
        "delete,",
        "gzip",
        "Producer",
        "LogAppendTime",
    ]
    values += ["0:1, 2:3", "*", "*,", "0:1,x", "9223372036854775807", "-9223372036854775808", "1d", ",", " 7 "]
    for name, key in TOPIC_CONFIG_DEF.keys.items():
        for value in source.sample(values, 25):
            config, error = java(real, {name: value})
            try:
                parsed = key.parse(value)
            except UsageError as ours_error:
                assert error == "org.apache.kafka.common.config.ConfigException", (name, value)
                assert name in str(ours_error)
                assert value in str(ours_error)
                continue
            assert error is None, (name, value)
            theirs = config.get(name)
            assert parsed == (list(theirs) if isinstance(parsed, list) else theirs) or parsed != parsed, (name, value)


def test_derived_settings(oracle: Oracle) -> None:
    for overrides in (
        {},
        {"cleanup.policy": "compact", "max.compaction.lag.ms": "5"},
        {"preallocate": "true", "internal.segment.bytes": "5000"},
    ):
        real = oracle.java_class(f"{LOG}.LogConfig")(overrides)
        config: TopicConfig = topic_config(overrides)
        assert (config.segment_size, config.init_file_size, config.max_segment_ms) == (
            real.segmentSize(),
            real.initFileSize(),
            real.maxSegmentMs(),
        )
        assert (config.compact, config.delete) == (get_field(real, "compact"), get_field(real, "delete"))


def test_defaults_from_a_broker(oracle: Oracle) -> None:
    required = {"process.roles": "broker", "node.id": "1", "controller.quorum.voters": "2@localhost:9", "controller.listener.names": "C"}
    required |= {"listeners": "PLAINTEXT://localhost:0", "listener.security.protocol.map": "C:PLAINTEXT,PLAINTEXT:PLAINTEXT"}
    cases: list[dict[str, str]] = [
        {},
        {"log.retention.hours": "3", "log.roll.hours": "2", "log.roll.jitter.hours": "1"},
        {"log.retention.hours": "3", "log.retention.minutes": "7", "log.roll.hours": "2", "log.roll.ms": "9"},
        {"log.retention.minutes": "7", "log.retention.ms": "-5", "log.flush.scheduler.interval.ms": "8"},
        {"log.flush.interval.ms": "6", "log.flush.scheduler.interval.ms": "8", "log.retention.hours": "-1"},
        {"log.segment.bytes": "1048576", "log.index.size.max.bytes": "1000", "log.index.interval.bytes": "7", "message.max.bytes": "5"},
        {"log.cleanup.policy": "compact,delete", "log.cleaner.min.cleanable.ratio": "0.25", "log.cleaner.delete.retention.ms": "4"},
        {
            "log.segment.delete.delay.ms": "3",
            "log.preallocate": "true",
            "log.message.timestamp.type": "LogAppendTime",
            "min.insync.replicas": "2",
        },
        {
            "compression.type": "zstd",
            "compression.zstd.level": "-5",
            "log.local.retention.ms": "11",
            "unclean.leader.election.enable": "true",
        },
    ]
    broker_class = oracle.java_class("kafka.server.KafkaConfig")
    log_class = oracle.java_class(f"{LOG}.LogConfig")
    for case in cases:
        broker = broker_class(oracle.properties(required | case), False)
        real = log_class(broker.extractLogConfigMap())
        config = topic_config({}, case | {"listeners": "unknown to topics"})
        for name in TOPIC_CONFIG_DEF.keys:
            value: object = getattr(config, re.sub(r"\.", "_", name))
            theirs = real.get(name)
            assert (list(value) if isinstance(value, tuple) else value) == (list(theirs) if isinstance(value, tuple) else theirs), (
                case,
                name,
            )


def test_lock(oracle: Oracle, tmp_path: Path) -> None:
    """Each respects the other's lock of a log directory."""
    from kops.errors import LockHeldError
    from kops.files import OsFiles

    files = OsFiles()
    real = oracle.java_class("org.apache.kafka.server.util.FileLock")(oracle.jvm.java.io.File(str(tmp_path / ".lock")))
    with files.lock(str(tmp_path)):
        assert not real.tryLock()
    assert real.tryLock()
    with pytest.raises(LockHeldError):
        files.lock(str(tmp_path))
    assert files.lock_owner(str(tmp_path)) not in (None, os.getpid())
    real.unlockAndClose()
    files.lock(str(tmp_path)).release()
