"""`df.write.format("kafkalog")`: rows become records at the ends of logs that kops and Apache Kafka open."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from kops.errors import UsageError
from kops.files import OsFiles
from kops.forensics.verify.run import verify
from kops.spark.source.writer import read_write_options
from tests.support.kafka.oracle import Oracle
from tests.support.kafka.real_broker import RealBroker

pytestmark = pytest.mark.timeout(1200)  # each first use of the source starts Python workers
SCHEMA = "topic string, partition int, key binary, value binary, headers array<struct<key: string, value: binary>>, timestamp timestamp"
TIME = datetime(2024, 5, 6, 7, 8, 9, 123000)


def rows(number: int) -> list[tuple[Any, ...]]:
    headers = [("h", b"1"), ("null", None)]
    return [("made", n % 3, b"k%d" % n if n % 5 else None, b"v%d" % n, headers if n % 7 == 0 else None, TIME) for n in range(number)]


def write(spark: Any, data: list[tuple[Any, ...]], path: Path, **options: Any) -> None:
    spark.createDataFrame(data, SCHEMA).repartition(4).write.format("kafkalog").options(**options).mode("append").save(str(path))


def read(spark: Any, path: Path) -> list[tuple[Any, ...]]:
    frame = spark.read.format("kafkalog").load(str(path)).select("topic", "partition", "offset", "key", "value", "headers", "timestamp")
    found = frame.orderBy("topic", "partition", "offset").collect()
    return [(row.topic, row.partition, row.offset, row.key, row.value, row.headers, row.timestamp) for row in found]


@pytest.mark.slow
def test_what_was_written_is_read_back(spark: Any, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    settings = {"segment.bytes": "1048576", "index.interval.bytes": "512", "compression": "zstd", "batchSize": "300", "leaderEpoch": "4"}
    for times in (1, 2):
        write(spark, rows(400), log_dir, **settings)
        found = read(spark, log_dir)
        assert len(found) == 400 * times
        assert [row[2] for row in found if row[1] == 1] == list(range(len([row for row in found if row[1] == 1])))
        expected = [(row[0], row[1], row[2], row[3], row[4], row[5]) for row in rows(400)] * times
        got = [(row[0], row[1], row[3], row[4], row[5] and [tuple(each) for each in row[5]], row[6]) for row in found]
        assert sorted(map(repr, got)) == sorted(map(repr, expected))
    assert verify([log_dir], "full").findings == []
    assert {path.name for path in log_dir.iterdir()} == {f"made-{number}" for number in range(3)}
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert (log_dir / "made-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n4 0\n"


@pytest.mark.slow
def test_a_directory_whose_lock_is_held_is_refused(spark: Any, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    lock = OsFiles().lock(str(log_dir))
    try:
        with pytest.raises(Exception, match="lock"):
            write(spark, rows(3), log_dir)
    finally:
        lock.release()
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]
    assert [path.name for path in log_dir.iterdir() if path.name != ".lock"] == []


@pytest.mark.slow
def test_rows_that_are_no_records(spark: Any, tmp_path: Path) -> None:
    log_dir = tmp_path / "logs"
    log_dir.mkdir()
    with pytest.raises(Exception, match="not the name of a partition"):
        write(spark, [("../out", 0, None, b"v", None, None)], log_dir)
    with pytest.raises(Exception, match="has no column size"):
        spark.sql("select 'v' as value, 1 as size").write.format("kafkalog").mode("append").save(str(log_dir))
    with pytest.raises(Exception, match="with the option topic"):
        spark.sql("select 'v' as value").write.format("kafkalog").mode("append").save(str(log_dir))
    with pytest.raises(Exception, match="never replaces a log"):
        spark.sql("select 'v' as value").write.format("kafkalog").mode("overwrite").save(str(log_dir))
    assert list(log_dir.iterdir()) == []
    assert [path.name for path in tmp_path.iterdir()] == ["logs"]


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"path": "/x", "colour": "red"}, "no option colour"),
        ({}, "needs a log directory"),
        ({"path": "/x", "batchSize": "0"}, "batchSize=0"),
        ({"path": "/x", "leaderEpoch": "new"}, "leaderEpoch=new"),
        ({"path": "/x", "compression": "rar"}, "compression=rar"),
        ({"path": "/x", "segment.colour": "1"}, "segment.colour"),
    ],
)
def test_options_that_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        read_write_options(given)


@pytest.mark.slow
def test_a_real_broker_serves_what_was_written(spark: Any, oracle: Oracle, tmp_path: Path) -> None:
    log_dir = tmp_path / "disk"
    with RealBroker(oracle, tmp_path / "run", log_dirs=[log_dir]) as broker:
        admin = oracle.java_class("org.apache.kafka.clients.admin.Admin").create(oracle.properties({"bootstrap.servers": broker.bootstrap}))
        try:
            wanted = oracle.jvm.java.util.ArrayList()
            wanted.add(oracle.jvm.org.apache.kafka.clients.admin.NewTopic("made", 3, oracle.short(1)))
            admin.createTopics(wanted).all().get()
        finally:
            admin.close()
        with pytest.raises(Exception, match="lock"):
            write(spark, rows(3), log_dir)
    write(spark, rows(600), log_dir, compression="gzip")
    found = read(spark, log_dir)
    with RealBroker(oracle, tmp_path / "again", log_dirs=[log_dir]) as broker, oracle.consumer(broker.bootstrap) as consumer:
        for partition in range(3):
            seen = oracle.read_partition(consumer, "made", partition)
            assert seen.meta["error"] is None
            assert [row["offset"] for row in seen.records] == [row[2] for row in found if row[:2] == ("made", partition)] != []
