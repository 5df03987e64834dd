"""`kops cluster restart`: stop a cluster and start it again."""

from __future__ import annotations

import time
from typing import Annotated

import typer

from kops.cli.inputs.cluster_words import DataDir, node_words, supervision_of
from kops.cli.printing.output import Output
from kops.cli.running.options import command


@command(
    examples=[
        ("Stop all brokers, then start them again.", "kops cluster restart"),
        ("Restart one broker after another, so that clients can keep working.", "kops cluster restart --rolling"),
    ]
)
def restart(
    out: Output,
    data_dir: DataDir = None,
    rolling: Annotated[bool, typer.Option("--rolling", help="One broker after another.", show_default=False)] = False,
    timeout: Annotated[int, typer.Option("--timeout", metavar="SECONDS", min=1, help="The longest time to wait for a start.")] = 60,
) -> int:
    """Stop a cluster cleanly and start it again, with the current settings in its properties files.

    If the supervisor was killed, its brokers are found and stopped, and the whole cluster is started again.
    """
    from kops.cluster.launch import STOP_TIMEOUT_S, UpRequest, bring_up, locate, start_brokers, take_down

    started = time.monotonic()
    if rolling:
        running = supervision_of(data_dir)
        directory = running.directory
        for node_id in directory.node_ids():
            running.ask("stop", ids=[node_id], timeout_s=STOP_TIMEOUT_S)
            start_brokers(running, [node_id], timeout_s=timeout)
            out.say(f"broker {node_id} was restarted")
        bootstrap_servers = directory.bootstrap_servers()
    else:
        directory = locate(data_dir)
        for sentence in take_down(directory):
            out.say(sentence)
        bootstrap_servers = bring_up(directory, UpRequest(), timeout_s=timeout).bootstrap_servers
    out.say(f"{node_words(directory)} in {directory.path}, {time.monotonic() - started:.2f} s")
    out.line(bootstrap_servers)
    return 0
