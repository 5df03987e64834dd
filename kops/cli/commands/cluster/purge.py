"""`kops cluster purge`: remove a cluster with all its data."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.cluster_words import DataDir
from kops.cli.printing.output import Output, can_ask
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import PLAIN_FAILED
from kops.cli.running.options import command


@command(
    examples=[
        ("Remove ./kops-data after confirmation.", "kops cluster purge"),
        ("Remove a cluster without confirmation.", "kops cluster purge --yes --data-dir /tmp/cluster"),
    ]
)
def purge(
    out: Output,
    data_dir: DataDir = None,
    yes: Annotated[bool, typer.Option("-y", "--yes", help="Do it without asking.", show_default=False)] = False,
) -> int:
    """Remove a cluster that is down: its settings, its log directories in D, and the files of kops in D/.kops.

    It keeps other files in D, and log directories elsewhere that kops cluster adopt took over.
    """
    from kops.cluster.launch import locate, require_down
    from kops.cluster.launch import purge as remove

    directory = locate(data_dir)
    require_down(directory)
    brokers = many(len(directory.node_ids()), "broker")
    if not yes and not (can_ask() and out.confirm(f"Remove {directory.path} with all data of {brokers}?")):
        out.say("nothing was removed; --yes does it")
        return PLAIN_FAILED
    left = remove(directory)
    out.say(f"{directory.path} was removed" + (f", but for {', '.join(left)}" if left else ""))
    return 0
