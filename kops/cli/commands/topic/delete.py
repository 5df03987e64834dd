"""`kops topic delete`: deletes topics with all their records."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.connecting import (
    OUTCOME_COLUMNS,
    Bootstrap,
    CommandConfig,
    CommandProperty,
    TopicOption,
    connect,
    need_topics,
    outcome,
    report,
)
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.printing.text import many
from kops.cli.running.options import command
from kops.errors import NotFoundError

SCHEMA = "kops.topic-delete/v1"
COLUMNS = [Column("topic"), *OUTCOME_COLUMNS]


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("One topic.", "kops topic delete orders"),
        ("All topics that begin with test-, without confirmation.", "kops topic delete 'test-.*' --yes"),
    ],
)
def delete(
    out: Output,
    topics: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics by name, or by regular expression if no topic has that name.")
    ] = None,
    topic: TopicOption = None,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do not fail when a topic does not exist.")] = False,
    dry_run: Annotated[bool, typer.Option("-n", "--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Don't ask, even if a name is a regular expression.")] = False,
    bootstrap: Bootstrap = None,
    config: CommandConfig = None,
    properties: CommandProperty = None,
) -> int:
    """Delete topics and all records in them. This cannot be undone.

    Topics found by a regular expression are deleted only after confirmation at the terminal, or with --yes.
    """
    from kops.cli.printing.output import can_ask
    from kops.client.topics import delete_topics, list_topics, match_topics

    wanted = need_topics(topics, topic)
    with connect(out, bootstrap, config, properties) as client:
        there = [info.name for info in list_topics(client)]
        names: dict[str, None] = {}
        for text in wanted:
            try:
                names |= dict.fromkeys(match_topics(there, [text]))
            except NotFoundError:
                if not if_exists:
                    raise
                out.say(f"{text} does not exist")
        found = [name for name in names if name not in wanted]
        if found and not yes and not dry_run:
            if not can_ask():
                raise NotFoundError(f"no topic has exactly this name; {', '.join(found)} would match: --yes deletes them")
            if not out.confirm(f"Delete {many(len(names), 'topic')} ({', '.join(names)})?"):
                return 1
        results = dict.fromkeys(names) if dry_run else delete_topics(client, list(names)) if names else {}
    status = report(out, results.items())
    rows = [{"topic": name, **outcome(error)} for name, error in results.items()]
    out.rows(rows, COLUMNS, schema=SCHEMA, key="topics", dry_run=dry_run)
    return status
