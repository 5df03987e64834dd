"""`spark.read.format("kafkalog")`: its rows equal those of Kafka's consumer and of the scanner; damage as rows; filters and columns."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from kops.errors import DecodeError, UsageError
from kops.files import OsFiles
from kops.forensics.inventory.tree import PartitionDir, open_paths
from kops.records import Batch, Damage, scan
from kops.spark.source.options import read_options
from kops.spark.source.schemas import SCHEMAS, ddl
from tests.spark.scan_commands import Commands
from tests.support import corpus
from tests.support.patience import until
from tests.support.rings import sample

CASES = ["v0-0.9.0.1-codec-gzip"]
OTHERS = ["v2-4.3.0-transactions", "v1-0.10.2.2-codec-lz4", "v2-4.3.0-codec-zstd", "v2-4.3.0-logappendtime-gzip"]
TYPES = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


def _text(value: bytes | bytearray | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _ms(value: datetime | None) -> int | None:
    return None if value is None else round(value.astimezone(UTC).timestamp() * 1000)


@pytest.mark.parametrize("case_id", [*CASES, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)])
def test_records_are_those_of_kafkas_consumer(spark: Any, case_id: str) -> None:
    case = corpus.load(case_id)
    (truth,) = [path for path in case.files("truth/records") if path.endswith("read_uncommitted.jsonl")]
    rows = spark.read.format("kafkalog").option("taskBytes", "2000").load(str(case.root / "data")).orderBy("offset").collect()
    expected = case.lines(truth)
    start = expected[0]["offset"]
    got = [row for row in rows if row.offset >= start]
    assert len(got) == len(expected)
    for row, wanted in zip(got, expected, strict=True):
        assert (row.offset, _text(row.key), _text(row.value)) == (wanted["offset"], wanted["key"], wanted["value"])
        assert TYPES[row.timestampType] == wanted["tsType"]
        assert (_ms(row.timestamp) if wanted["timestamp"] >= 0 else -1) == wanted["timestamp"]
        assert [[header.key, _text(header.value)] for header in row.headers or []] == wanted["headers"]
        assert row.damage is None
        assert row.leaderEpoch == wanted["leaderEpoch"]


def test_a_session_of_the_program(spark: Any) -> None:
    """Spark has filters of Python data sources off by default, and then refuses the source. `register` turns them on."""
    from kops.spark import keys, records, register

    path = str(corpus.load(OTHERS[0]).root / "data")
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    register(spark)
    count = spark.read.format("kafkalog").load(path).where("offset >= 0").count()
    assert count == records(spark, path).count() > 0  # one text is one path
    (topic,) = {row.topic for row in keys(spark, path).collect()}
    assert keys(spark, path, topics=topic).count() > 0  # and one topic


def test_records_of_the_function_are_those_of_the_source(spark: Any) -> None:
    """Several tasks, damage, control records, columns in another order."""
    from kops.spark import records

    paths = [str(corpus.load(case).root / name) for case, name in (("damage-4.3.0-two-flips", "before"), (OTHERS[0], "data"))]
    columns = ["value", "offset", "headers", "path", "isControl", "timestamp", "damage"]
    options = {"includeControl": "true", "taskBytes": "3000"}
    source = spark.read.format("kafkalog").options(**options).load(",".join(paths)).select(*columns)
    frame = records(spark, paths, columns, **options)
    assert frame.rdd.getNumPartitions() > 2
    assert frame.dtypes == source.dtypes
    found = sorted(frame.collect(), key=repr)
    assert found == sorted(source.collect(), key=repr)
    assert any(row.damage for row in found) and any(row.isControl for row in found)
    assert records(spark, paths).columns == list(SCHEMAS["records"])


@pytest.mark.parametrize(
    ("columns", "options", "why"),
    [
        (["offset", "offsets"], {}, "no column offsets; they have key, value, topic"),
        (None, {"mode": "batches"}, 'mode batches: use spark.read.format\\("kafkalog"\\)'),
        (None, {"startingOffsets": "earliest"}, "startingOffsets is an option of spark.readStream"),
        (None, {"tasks": "1"}, "kafkalog has no option tasks"),
    ],
)
def test_what_the_function_refuses(columns: list[str] | None, options: dict[str, str], why: str) -> None:
    """Before Spark is asked for anything."""
    from kops.spark import records

    with pytest.raises(UsageError, match=why):
        records(None, ["/data"], columns, **options)


def _partitions(paths: list[str]) -> Iterator[PartitionDir]:
    found = open_paths(paths, OsFiles(read_only=True))
    for log_dir in found.log_dirs:
        yield from log_dir.partitions
    yield from found.loose_partitions


@pytest.mark.parametrize("some", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["some", "all"])
def test_batches_and_damage_are_those_of_the_scanner(spark: Any, some: bool) -> None:
    """This covers a case of every third family, or all cases."""
    case_ids = sorted(sample(__name__, corpus.cases("damage")))[::3] if some else corpus.cases("damage")
    paths = [str(corpus.load(case_id).root / "before") for case_id in case_ids]
    expected: list[tuple[Any, ...]] = []
    for partition in _partitions(paths):
        for segment in partition.live_segments:
            assert segment.log is not None
            with OsFiles(read_only=True).open(segment.log.path) as file:
                for item in scan(file):
                    if isinstance(item, Damage):
                        expected.append((segment.log.path, item.position, item.length, None, item.code))
                    else:
                        expected.append((segment.log.path, item.position, item.size, item.crc, None))
    frame = spark.read.format("kafkalog").option("mode", "batches").option("taskBytes", "4000" if some else "2000").load(",".join(paths))
    got = [(row.path, row.position, row.size, row.crc, row.damage.code if row.damage else None) for row in frame.collect()]
    assert sorted(got, key=str) == sorted(expected, key=str)
    assert sum(1 for each in expected if each[4]) > (0 if some else 40)


def test_records_that_cannot_be_read_are_damage(spark: Any) -> None:
    case = corpus.load("damage-4.3.0-body-garbage-crc-ok")
    rows = spark.read.format("kafkalog").load(str(case.root / case.json["damagedDir"])).collect()
    (bad,) = [row for row in rows if row.damage is not None]
    assert bad.value is None
    with OsFiles(read_only=True).open(bad.path) as file:
        batch = next(item for item in scan(file, bad.damage.position) if isinstance(item, Batch))
    with pytest.raises(DecodeError) as error:
        batch.records()
    assert (bad.damage.code, bad.damage.reason) == (error.value.code, error.value.reason)
    assert (bad.damage.baseOffset, bad.damage.lastOffset) == (batch.base_offset, batch.last_offset)


def test_one_row_a_segment(spark: Any) -> None:
    case = corpus.load("damage-4.3.0-two-flips")
    rows = spark.read.format("kafkalog").option("mode", "segments").load(str(case.root / "before")).orderBy("baseOffset").collect()
    assert [row.baseOffset for row in rows] == [0, 21, 42, 63, 84]
    assert [len(row.damages) for row in rows] == [0, 1, 0, 0, 1]
    assert sum(row.records for row in rows) == 99 - 6


@pytest.mark.slow
def test_filters_choose_what_is_read_and_change_nothing_else(spark: Any) -> None:
    case = corpus.load("cluster-4.3.0")
    frame = spark.read.format("kafkalog").load(str(case.root / "nodes" / "n1"))
    everything = frame.select("topic", "partition", "offset").collect()
    conditions: list[tuple[str, Callable[[Any], bool]]] = [
        ("topic = 'sensor.readings-multi'", lambda row: row.topic == "sensor.readings-multi"),
        ("partition in (0, 2) and offset >= 20", lambda row: row.partition in (0, 2) and row.offset >= 20),
        ("offset < 5", lambda row: row.offset < 5),
        ("offset = 7", lambda row: row.offset == 7),
        ("topic = 'nowhere'", lambda row: False),
    ]
    for condition, keep in conditions:
        got = frame.filter(condition).select("topic", "partition", "offset").collect()
        assert sorted(got) == sorted(row for row in everything if keep(row)), condition


def test_a_single_file_is_read(spark: Any) -> None:
    case = corpus.load("v2-4.3.0-codec-lz4")
    log = sorted(case.root.glob("data/*/*.log"))[0]
    rows = spark.read.format("kafkalog").load(str(log)).collect()
    assert rows[0].offset == 0
    assert {row.topic for row in rows} == {log.parent.name.rpartition("-")[0]}


@pytest.mark.slow
def test_a_users_schema_chooses_columns(spark: Any) -> None:
    case = corpus.load("v2-4.3.0-codec-none")
    frame = spark.read.format("kafkalog").schema("offset bigint, value binary").load(str(case.root / "data"))
    assert frame.columns == ["offset", "value"]
    assert frame.filter("value is not null").count() > 0


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ("offset int", "column offset is bigint, not int; cast it in the query"),
        ("value string", "column value is binary, not string"),
        ("headers array<string>", "column headers is array<struct<key: string, value: binary>>"),
        ("offset bigint NOT NULL", "column offset is null in rows of damage"),
        ("offsets bigint", "mode records has no column offsets; it has key, value"),
    ],
)
def test_a_users_schema_of_other_columns_is_refused(spark: Any, schema: str, words: str) -> None:
    path = str(corpus.load("v2-4.3.0-single").root / "data")
    with pytest.raises(Exception, match=words):
        spark.read.format("kafkalog").schema(schema).load(path).count()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["segments", "batches", "records"])
def test_a_users_schema_of_all_columns(spark: Any, mode: str) -> None:
    path = str(corpus.load("v2-4.3.0-codec-none").root / "data")
    assert spark.read.format("kafkalog").option("mode", mode).schema(ddl(mode)).load(path).count() > 0


@pytest.mark.slow
def test_control_records_are_there_when_asked_for(spark: Any) -> None:
    path = str(corpus.load("v2-4.3.0-transactions").root / "data")
    assert spark.read.format("kafkalog").load(path).filter("isControl").count() == 0
    assert spark.read.format("kafkalog").option("includeControl", "true").load(path).filter("isControl").count() > 0


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"mode": "batch"}, "segments, batches, records"),
        ({"taskBytes": "many"}, "taskBytes"),
        ({"includeControl": "1"}, "true, false"),
        ({"taskBite": "5"}, "kafkalog has no option taskBite; it has path, mode, taskBytes"),
        ({"replicas": "best"}, "replicas=best: not one of all, furthest"),
        ({"at": "yesterday", "mode": "groups"}, "at yesterday: neither milliseconds"),
        ({"at": "5"}, "at=5: only modes groups and transactions"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], word: str) -> None:
    with pytest.raises(UsageError, match=word):
        read_options({"path": "/data", **options})


def test_an_option_that_there_is_not_is_refused_by_spark(spark: Any) -> None:
    path = str(corpus.load("v2-4.3.0-single").root / "data")
    with pytest.raises(Exception, match="kafkalog has no option taskbite"):
        spark.read.format("kafkalog").option("taskBite", "5").load(path)


@pytest.mark.slow
def test_groups_transactions_and_metadata_are_those_of_kops_log(spark: Any, commands: Commands) -> None:
    nodes = [str(corpus.load("cluster-4.3.0").root / "nodes" / name) for name in ("n1", "n2", "n3")]

    def rows(mode: str) -> list[Any]:
        return list(spark.read.format("kafkalog").option("mode", mode).load(",".join(nodes)).collect())

    offsets = commands("log", "offsets", "--format", "jsonl", *nodes).lines
    got = [(row.group, row.topic, row.partition, row.offset, row.state, _ms(row.timestamp), row.recordOffset) for row in rows("groups")]
    names = ("group", "topic", "partition", "offset", "state", "timestamp", "record_offset")
    assert sorted(got, key=str) == sorted((tuple(row[name] for name in names) for row in offsets), key=str)
    ids = commands("log", "txnstate", "--format", "jsonl", *nodes).lines
    found = [
        (row.transactionalId, row.state, row.producerId, [f"{each.topic}-{each.partition}" for each in row.partitions], _ms(row.updated))
        for row in rows("transactions")
    ]
    keys = ("transactional_id", "state", "producer_id", "partitions", "updated")
    assert sorted(found, key=str) == sorted((tuple(row[name] for name in keys) for row in ids), key=str)
    tree = commands("log", "meta", "find", "--format", "jsonl", nodes[0]).lines
    leaves = {row["path"]: row["value"] for row in tree if row["children"] is None}
    metadata = spark.read.format("kafkalog").option("mode", "metadata").load(nodes[0]).collect()
    assert {row.node: json.loads(row.value) for row in metadata if not row.node.startswith("topics/byId/")} == {
        path: value for path, value in leaves.items() if not path.startswith("topics/byId/")
    }
    assert {row.broker for row in metadata} == {1}


def test_a_limit_stops_early(spark: Any) -> None:
    """The rows of a few segments are enough, so the others are not read."""
    path = str(corpus.load("cluster-4.3.0").root / "nodes" / "n1")
    frame = spark.read.format("kafkalog").option("taskBytes", "1").load(path)
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("a limit", "a limit")
    try:
        assert len(frame.limit(3).collect()) == 3
    finally:
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)

    def tasks() -> int:
        jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup("a limit")]
        stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
        return sum(stage.numTasks for stage in stages if stage is not None)

    # Spark's tracker hears of jobs and stages from a queue.
    assert 1 <= until(tasks) <= 5 < frame.rdd.getNumPartitions()
