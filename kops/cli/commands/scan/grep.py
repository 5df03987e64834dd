"""`kops scan grep`: finds records that match, in all partitions of a cluster."""

from __future__ import annotations

from typing import Any

from kops.cli.commands.log.questions import searching as search
from kops.cli.commands.log.questions.reading import Topic
from kops.cli.commands.scan.running import Paths, Rows, Scan
from kops.cli.commands.scan.submitting import scan_command
from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import NOT_FOUND
from kops.errors import UsageError


@scan_command(
    writes=True,
    keeps=True,
    examples=[
        ("Every record of a customer.", "kops scan grep --key '^customer-17$' /data/broker-1 /data/broker-2 /data/broker-3"),
        ("What was written in a quarter of an hour.", "kops scan grep --from-time 2026-11-21T03:00Z --to-time 2026-11-21T03:15Z /data"),
        ("Values with a word, as Parquet.", "kops scan grep --value timeout --topic logs --out found.parquet /data"),
        ("How many orders in JSON failed, by partition.", "kops scan grep --count --jsonpath '$.order.state=failed' /data"),
    ],
)
def grep(
    out: Output,
    scan: Scan,
    paths: Paths,
    key: search.Key = None,
    value: search.Value = None,
    header: search.Header = None,
    jsonpath: search.JsonPath = None,
    avro: search.Avro = None,
    protobuf: search.Protobuf = None,
    message: search.MessageName = None,
    topic: Topic = None,
    from_offset: search.FromOffset = None,
    to_offset: search.ToOffset = None,
    from_time: search.FromTime = None,
    to_time: search.ToTime = None,
    pid: search.Pid = None,
    epoch: search.Epoch = None,
    leader_epoch: search.LeaderEpoch = None,
    txn_id: search.TxnId = None,
    txn_state: search.TxnState = None,
    invert_match: search.Invert = False,
    count: search.Count = False,
    max_count: search.MaxCount = None,
) -> int:
    """Find records by key, value, header, offset, time or producer, on Spark; read-only.

    The options and results are those of kops log grep, whose help explains them. One replica of each partition is read: the one with the
    largest end offset. Files of --out have keys and values as bytes.
    """
    wanted = search.search_of(locals())
    if count and max_count is not None:
        raise UsageError("--count and --max-count exclude each other")
    options: dict[str, Any] = {"topics": topic or (), "transactional_id": txn_id, **scan.options}

    def job(spark: Any) -> Any:
        from kops.spark.jobs import grep as jobs

        if count:
            return jobs.count(spark, paths, wanted, **options)
        return jobs.grep(spark, paths, wanted, limit=max_count, **options)

    matches = [0]

    def shown(row: dict[str, Any]) -> dict[str, Any]:
        if count:
            matches[0] += row["records"]
            return row
        import json

        matches[0] += 1
        headers = [(each["key"], each["value"]) for each in row["headers"]]
        decoded = None if row["decoded"] is None else json.loads(row["decoded"])
        return search.shown({**row, "headers": headers, "decoded": decoded}, out.format)

    columns = search.COUNT_COLUMNS if count else search.columns(wanted)
    schema, name = (search.COUNT_SCHEMA, "partitions") if count else (search.SCHEMA, "records")
    written = scan.run(out, job, Rows(columns, schema, name, shown))
    return 0 if matches[0] or (scan.target is not None and written) else NOT_FOUND
