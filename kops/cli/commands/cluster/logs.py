"""`kops cluster logs`: prints the output of the brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.cluster_words import AnyDataDir
from kops.cli.printing.output import Output
from kops.cli.running.options import command


@command(
    examples=[
        ("The output of all brokers, in order of time.", "kops cluster logs"),
        ("The last 100 lines of broker 2, and new lines as they come.", "kops cluster logs 2 -n 100 -f"),
    ]
)
def logs(
    out: Output,
    ids: Annotated[list[int] | None, typer.Argument(metavar="[ID...]", help="Broker ids (default: all).")] = None,
    data_dir: AnyDataDir = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Print new lines as they come, until Ctrl-C.", show_default=False)] = False,
    lines: Annotated[
        int | None, typer.Option("-n", "--lines", metavar="N", min=0, help="The last N lines only.", show_default=False)
    ] = None,
) -> int:
    """Print the output of the brokers, each line with its broker id.

    The files are D/.kops/broker-N.out. The output of the supervisor is in D/.kops/supervisor.out.
    """
    from kops.cluster import output
    from kops.cluster.launch import locate

    directory = locate(data_dir, look_around=True)
    directory.require()
    for node_id in ids or ():
        directory.require_node(node_id)
    node_ids = ids or directory.node_ids()
    prefix = "broker {} | " if len(node_ids) > 1 else ""
    found = output.said(directory, node_ids)
    for said in found if lines is None else found[len(found) - min(lines, len(found)) :]:
        out.line(prefix.format(said.node_id) + said.text)
    if follow:
        out.flush()
        for came in output.follow(directory, node_ids):
            for said in came:
                out.line(prefix.format(said.node_id) + said.text)
            out.flush()
            out.check_reader()
    return 0
