"""`kops log forecast`: predicts what an Apache Kafka 4.3 broker would do to a directory when it starts, and what would be lost."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.lines import topic_settings
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import CLEAN, PROBLEMS
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.forensics.forecast.run import Forecast, ForecastOptions, PartitionForecast

ASSUMPTIONS = {"clean": True, "crash": False}
COLORS = {
    "loaded": "green",
    "loaded-consumer-error": "yellow",
    "stray": "yellow",
    "log-dir-offline": "red",
    "broker-does-not-start": "red",
}


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("A broker with two log directories.", "kops log forecast /disk1/kafka /disk2/kafka"),
        (
            "One partition, as after a crash whose recovery point was 1000.",
            "kops log forecast --assume crash --recovery-point 1000 /data/orders-0",
        ),
        ("The directories and settings of a server.properties.", "kops log forecast --server-properties /etc/kafka/server.properties"),
    ],
)
def forecast(
    out: Output,
    paths: Annotated[
        list[str] | None, typer.Argument(metavar="[DIR...]", help="All log directories of one broker, or partition directories.")
    ] = None,
    assume: Annotated[
        str | None,
        typer.Option(metavar="clean|crash", help="Assume a stop with or without .kafka_cleanshutdown.", show_default=False),
    ] = None,
    recovery_point: Annotated[
        int | None, typer.Option(metavar="N", help="The recovery point of each partition, instead of the checkpoint's.", show_default=False)
    ] = None,
    log_start_offset: Annotated[
        int | None,
        typer.Option(metavar="N", help="The log start offset of each partition, instead of the checkpoint's.", show_default=False),
    ] = None,
    config: Annotated[list[str] | None, typer.Option(metavar="K=V", help="A topic setting; it overrides the metadata log.")] = None,
    server_properties: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The broker's settings: node.id, log.dirs, metadata.log.dir, log.*.", show_default=False),
    ] = None,
) -> int:
    """Predict what a Kafka 4.3 broker would truncate, delete or refuse when it starts, and what would be lost.

    The broker's loading code runs on a copy of the directories in memory and writes nothing to them. Log directories are loaded
    together, as by one broker: meta.properties, checkpoints, the clean-shutdown marker, stray and duplicate partitions are considered.
    Partition directories are loaded one by one, as the log loader does. The marker on disk says whether the last stop was clean; --assume,
    --recovery-point and --log-start-offset assume another state. Lost offsets marked intact are still readable in the files: kops log
    recover saves them.
    """
    from kops.files import OsFiles
    from kops.forensics.forecast.run import SCHEMA
    from kops.forensics.forecast.run import forecast as run

    options, log_dirs = _options(assume, recovery_point, log_start_offset, config or [], server_properties)
    wanted = paths or log_dirs
    if not wanted:
        raise UsageError("name the log directories or partition directories to forecast, or give --server-properties with log.dirs")
    answer = run(OsFiles(read_only=True), wanted, options)
    status = CLEAN if answer.harmless else PROBLEMS
    out.status |= status
    for warning in answer.warnings:
        out.warn(warning)
    if out.format in ("json", "yaml"):
        document = answer.to_json()
        document.pop("schema")
        out.document(document, schema=SCHEMA)
        return status
    if out.format in ("table", "wide"):
        _say_outcome(out, answer)
    out.rows(_rows(answer, human=out.format in ("table", "wide")), _columns(), schema=SCHEMA, key="partitions")
    return status


def _options(
    assume: str | None, recovery_point: int | None, log_start_offset: int | None, config: list[str], server_properties: str | None
) -> tuple[ForecastOptions, list[str]]:
    import time

    from kops.files import OsFiles
    from kops.forensics.forecast.run import ForecastOptions, use_server_properties

    if assume is not None and assume not in ASSUMPTIONS:
        raise UsageError(f"--assume {assume}: not one of {', '.join(ASSUMPTIONS)}")
    options = ForecastOptions(
        now_ms=int(time.time() * 1000),
        clean_shutdown=None if assume is None else ASSUMPTIONS[assume],
        recovery_point=recovery_point,
        log_start_offset=log_start_offset,
        overrides=topic_settings(config),
    )
    log_dirs = use_server_properties(OsFiles(read_only=True), server_properties, options) if server_properties is not None else []
    return options, log_dirs


def _say_outcome(out: Output, answer: Forecast) -> None:
    if answer.broker_outcome is not None:
        out.line(f"broker: {answer.broker_outcome}{_because(answer.broker_reason)}")
        for each in answer.log_dirs:
            is_told = each["reason"] == answer.broker_reason
            out.line(f"{each['dir']}: {each['outcome']}{_because(None if is_told else each['reason'])}")
        out.line("")


def _because(reason: str | None) -> str:
    return "" if reason is None else f" ({reason})"


def _ranges(ranges: list[tuple[int, int]]) -> str | None:
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges) or None


def _rows(answer: Forecast, *, human: bool) -> Iterator[dict[str, Any]]:
    # For people, the lines above the table have the reasons that concern the broker or a log directory.
    told = {answer.broker_reason, *(each["reason"] for each in answer.log_dirs)}
    for each in answer.partitions:
        yield _human(each, told) if human else each.to_json()


def _human(each: PartitionForecast, told: Collection[str | None]) -> dict[str, Any]:
    given_up = [*each.segments_removed, *(f"{cut['segment']} cut to {cut['to']}" for cut in each.segments_truncated)]
    row = each.to_json()
    row.update(lost=_ranges(each.lost), lost_though_intact=_ranges(each.lost_though_intact), segments=", ".join(given_up) or None)
    if each.reason in told:
        row["reason"] = None
    return row


def _columns() -> list[Column]:
    return [
        Column("dir"),
        Column("state"),
        Column("outcome", style=COLORS.get),
        Column("log_start_offset", "start", kind="int"),
        Column("log_end_offset", "end", kind="int"),
        Column("lost"),
        Column("lost_though_intact", "of these intact"),
        Column("segments", "segments given up"),
        Column("recovery_point", kind="int", wide=True),
        Column("reason"),
    ]
