"""`kops partition elect`: elects leaders."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    Controllers,
    connect,
    outcome,
    parse_partitions,
    report,
)
from kops.cli.inputs.files import read_text
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import KopsError, UsageError

SCHEMA = "kops.elect/v1"
TYPES = ("preferred", "unclean")
COLUMNS = [Column("topic"), Column("partition", kind="int"), Column("result"), *OUTCOME_COLUMNS]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("The preferred leaders of all partitions.", "kops partition elect --all-topic-partitions"),
        ("Of one partition.", "kops partition elect --topic orders --partition 0"),
        (
            "Any leader, for the partitions in Kafka's own file.",
            "kops partition elect --election-type unclean -f parts.json",
        ),
    ],
)
def elect(
    out: Output,
    election_type: Annotated[
        str,
        typer.Option("--election-type", metavar="|".join(TYPES), help="preferred: the first replica; unclean: any if none is in sync."),
    ] = "preferred",
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="The topic.")] = None,
    partitions: Annotated[
        list[str] | None, typer.Option("--partition", metavar="N", help="Partitions: 0, a list 0,2, a range 1-3.")
    ] = None,
    file: Annotated[
        str | None, typer.Option("-f", "--path-to-json-file", metavar="FILE", help="Kafka's file of partitions; - is stdin.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all-topic-partitions", help="Every partition.")] = False,
    bootstrap: Bootstrap = None,
    controllers: Controllers = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Elect leaders of partitions.

    An unclean election loses the records that the new leader does not have. It is not an error if a partition already has the right leader.

    1: an election failed.
    """
    from kops.client.partitions import ELECTION_TYPES, elect_leaders, parse_election
    from kops.records.log_offsets import TopicPartition

    if election_type.lower() not in TYPES:
        raise UsageError(f"--election-type {election_type}: not one of {', '.join(TYPES)}")
    if sum((topic is not None, file is not None, all_)) != 1 or (topic is None) != (not partitions):
        raise UsageError("give one of: --topic with --partition, --path-to-json-file, --all-topic-partitions")
    keys = None
    if topic is not None:
        keys = [TopicPartition(topic, number) for number in parse_partitions(partitions)]
    elif file is not None:
        keys = parse_election(read_text(file, "--path-to-json-file"), file)
    with connect(out, bootstrap, config, properties, controllers=controllers) as client:
        found = elect_leaders(client, ELECTION_TYPES[election_type.lower()], keys)
    rows = []
    errors: list[tuple[str, KopsError | None]] = []
    for key, result in sorted(found.items()):
        not_needed = result is not None and result.name == "ELECTION_NOT_NEEDED"
        error = None if not_needed else result
        errors.append((f"{key.topic}-{key.partition}", error))
        words = "not needed" if not_needed else "failed" if error is not None else "elected"
        rows.append({"topic": key.topic, "partition": key.partition, "result": words, **outcome(error)})
    status = report(out, errors)
    out.rows(rows, COLUMNS, schema=SCHEMA, key="partitions", election_type=election_type.lower())
    if not rows:
        out.say("no partition needs an election")
    return status
