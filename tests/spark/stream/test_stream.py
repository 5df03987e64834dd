"""`spark.readStream.format("kafkalog")` in Spark itself: checkpoints, triggers, and refused options."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kops.errors import UsageError
from kops.spark.source.stream_options import read_stream_options
from tests.spark.stream.tailing import LiveLog

pytestmark = pytest.mark.timeout(1200)
PROJECT = Path(__file__).resolve().parent.parent.parent.parent


class Sink:
    """The calls of `foreachBatch`, by the number of the batch. A batch that comes again replaces its former rows."""

    def __init__(self) -> None:
        self.batches: dict[int, list[Any]] = {}
        self.fails_at = -1

    def __call__(self, frame: Any, number: int) -> None:
        rows = frame.select("topic", "partition", "offset", "value", "damage").collect()
        self.batches[number] = [(row.topic, row.partition, row.offset, row.value and bytes(row.value), row.damage) for row in rows]
        if number == self.fails_at:
            raise RuntimeError("the sink is broken")

    @property
    def rows(self) -> list[Any]:
        return [row for _, rows in sorted(self.batches.items()) for row in rows]


def stream(spark: Any, path: Path | str, **options: str) -> Any:
    return spark.readStream.format("kafkalog").options(**{"startingOffsets": "earliest", **options}).load(str(path))


def run(frame: Any, sink: Sink, checkpoint: Path) -> Any:
    """Run a query over the records that are there now."""
    query = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint)).trigger(availableNow=True).start()
    query.awaitTermination()
    return query


@pytest.mark.slow
def test_a_query_that_failed_goes_on_from_its_checkpoint(spark: Any, tmp_path: Path) -> None:
    log = LiveLog(tmp_path / "broker")
    log.append(*[b"%d" % number for number in range(10)])
    sink = Sink()
    frame = stream(spark, tmp_path / "broker", maxOffsetsPerTrigger="8")
    sink.fails_at = 1
    with pytest.raises(Exception, match="the sink is broken"):
        run(frame, sink, tmp_path / "checkpoint")
    assert [len(rows) for rows in sink.batches.values()] == [8, 8]
    log.log.roll()
    log.append(b"10")
    sink.fails_at = -1
    query = run(frame, sink, tmp_path / "checkpoint")
    assert [len(rows) for rows in sink.batches.values()] == [8, 8, 6]
    assert sink.rows == [("orders", 0, offset, b"%d" % (offset // 2), None) for offset in range(22)]
    assert json.loads(query.lastProgress["sources"][0]["endOffset"])["orders"] == {"0": 22}
    log.append(b"11")
    log.log.roll()
    log.append(b"12")
    log.delete_before(24)
    with pytest.raises(Exception, match="orders-0: offsets 22 to 23 were deleted before they were read; the log begins at 24; to continue"):
        run(frame, sink, tmp_path / "checkpoint")
    run(stream(spark, tmp_path / "broker", failOnDataLoss="false"), sink, tmp_path / "checkpoint")
    assert [(row[2], row[4] and row[4].code) for row in sink.rows[22:]] == [(22, "data-loss"), (24, None), (25, None)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "first"}, "startingOffsets=first: not earliest, latest or JSON"),
        ({"startingOffsets": '{"orders": 5}'}, 'startingOffsets: the offsets: orders has no partitions as {"0": 23}'),
        ({"startingOffsets": '{"orders": {"a": 5}}'}, 'orders has {"a": 5}, not a partition and a number'),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders-0 has offset -3; -2 is earliest, -1 is latest"),
        ({"startingOffsets": '{"@id": {}}'}, "@id in the offsets: neither a topic nor one of @ids, @epochs"),
        ({"startingOffsets": "[]"}, "not a JSON object"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger=0: not a number, 1 or more"),
        ({"maxBytesPerTrigger": "1k"}, "maxBytesPerTrigger=1k: not a number, 1 or more"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss=no: not one of true, false"),
        ({"bound": "end"}, "bound=end: not one of high-watermark, log-end"),
        ({"isolation": "committed"}, "isolation=committed: not one of read_uncommitted, read_committed"),
        ({"bound": "log-end", "isolation": "read_committed"}, "bound=log-end contradicts isolation=read_committed"),
        ({"subscribe": "a", "subscribePattern": "b"}, "subscribe and subscribePattern exclude each other"),
        ({"subscribe": ","}, "subscribe names no topic"),
        ({"subscribePattern": "("}, "subscribePattern=(: not a regular expression"),
        ({"subscribe": "__cluster_metadata"}, "it needs bound=log-end"),
        ({"replicas": "all"}, "replicas is an option of spark.read"),
        ({"mode": "segments"}, "mode segments cannot be read as a stream; records and batches can"),
        ({"startingOffset": "latest"}, "kafkalog has no option startingOffset"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=re.escape(words)):
        read_stream_options({"path": "/data", **options})


def test_spark_read_refuses_the_options_of_streams(spark: Any, tmp_path: Path) -> None:
    LiveLog(tmp_path)
    with pytest.raises(Exception, match=r"startingOffsets is an option of spark\.readStream; spark\.read reads the existing data"):
        spark.read.format("kafkalog").option("startingOffsets", "earliest").load(str(tmp_path)).count()


@pytest.mark.slow
def test_the_example_of_the_manual(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The example is in docs/spark.md, "Tail a running cluster". The test uses other directories."""
    text = (PROJECT / "docs" / "spark.md").read_text()
    (example,) = re.findall(r"```python\n((?:(?!```).)*readStream.*?)```", text, re.DOTALL)
    LiveLog(tmp_path / "data" / "broker-1").append(b"a", b"b")
    for name in ("/data", "/checkpoints", "/lake"):
        assert name in example
        example = example.replace(f'"{name}/', f'"{tmp_path}{name}/')
    exec(compile(example, "docs/spark.md", "exec"), {"spark": spark})
    rows = spark.read.parquet(str(tmp_path / "lake" / "orders")).orderBy("offset").collect()
    assert [(row.topic, row.partition, row.offset, bytes(row.value)) for row in rows] == [
        ("orders", 0, offset, value) for offset, value in enumerate([b"a", b"a", b"b", b"b"])
    ]
