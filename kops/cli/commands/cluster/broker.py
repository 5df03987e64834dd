"""`kops cluster broker …`: stops, starts, pauses, kills, adds and removes single brokers."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.inputs.cluster_words import BrokerIds, DataDir, asked_brokers, given_settings, say_brokers, supervision_of
from kops.cli.printing.output import Output
from kops.cli.running.options import command

Timeout = Annotated[int, typer.Option("--timeout", metavar="SECONDS", min=1, help="The longest time to wait for a start.")]


@command(examples=[("Stop broker 2 cleanly.", "kops cluster broker stop 2")])
def stop(out: Output, ids: BrokerIds, data_dir: DataDir = None) -> int:
    """Stop brokers cleanly, as SIGTERM does. They first hand over their partitions. Returns when the processes have ended."""
    return _stop(out, ids, data_dir, kill=False)


@command(examples=[("Kill broker 2, as kill -9 does.", "kops cluster broker kill 2")])
def kill(out: Output, ids: BrokerIds, data_dir: DataDir = None) -> int:
    """Kill brokers, as kill -9 does."""
    return _stop(out, ids, data_dir, kill=True)


def _stop(out: Output, ids: list[int], data_dir: str | None, *, kill: bool) -> int:
    from kops.cluster.launch import STOP_TIMEOUT_S

    running = supervision_of(data_dir)
    brokers = running.ask("stop", ids=asked_brokers(running, ids), kill=kill, timeout_s=STOP_TIMEOUT_S)
    say_brokers(out.say, brokers, "was killed" if kill else "was stopped")
    return 0


@command(examples=[("Start broker 2 again.", "kops cluster broker start 2")])
def start(out: Output, ids: BrokerIds, data_dir: DataDir = None, timeout: Timeout = 60) -> int:
    """Start brokers that are down. Returns when they are registered and serve."""
    from kops.cluster.launch import start_brokers

    running = supervision_of(data_dir)
    brokers = start_brokers(running, asked_brokers(running, ids), timeout_s=timeout)
    say_brokers(out.say, brokers, "runs")
    return 0


@command(examples=[("Let broker 2 hang.", "kops cluster broker pause 2")])
def pause(out: Output, ids: BrokerIds, data_dir: DataDir = None) -> int:
    """Pause brokers (SIGSTOP). Their connections stay open, but they do not answer."""
    running = supervision_of(data_dir)
    say_brokers(out.say, running.ask("pause", ids=asked_brokers(running, ids)), "is paused")
    return 0


@command(examples=[("Let broker 2 continue.", "kops cluster broker resume 2")])
def resume(out: Output, ids: BrokerIds, data_dir: DataDir = None) -> int:
    """Resume paused brokers."""
    running = supervision_of(data_dir)
    say_brokers(out.say, running.ask("resume", ids=asked_brokers(running, ids)), "continues")
    return 0


@command(
    examples=[
        ("Add a broker.", "kops cluster broker add"),
        ("Add a broker with a rack.", "kops cluster broker add --config broker.rack=b"),
    ]
)
def add(
    out: Output,
    data_dir: DataDir = None,
    config: Annotated[list[str] | None, typer.Option("--config", metavar="K=V", help="A setting of this broker.")] = None,
    timeout: Timeout = 60,
) -> int:
    """Add a broker to a running cluster and print its id.

    It gets the next id and the settings of the first broker. It does not vote in the quorum. It has no partitions until some are created
    on it or moved to it.
    """
    from kops.cluster.membership import add_broker

    running = supervision_of(data_dir)
    node_id = add_broker(running, given_settings(out, config), timeout_s=timeout)
    out.say(f"broker {node_id} runs")
    out.line(str(node_id))
    return 0


@command(
    examples=[
        ("Remove a broker that was added.", "kops cluster broker remove 4"),
        ("Even if it has replicas.", "kops cluster broker remove 4 --force"),
    ]
)
def remove(
    out: Output,
    node_id: Annotated[int, typer.Argument(metavar="ID", help="The broker.")],
    data_dir: DataDir = None,
    force: Annotated[bool, typer.Option("--force", help="Even if it has replicas.", show_default=False)] = False,
) -> int:
    """Stop a broker, unregister it, and remove its directory and settings.

    Only a broker that was added can be removed, not one that votes in the quorum. A broker that still has replicas is removed only with
    --force.
    """
    from kops.cluster.membership import remove_broker

    running = supervision_of(data_dir)
    running.directory.require_node(node_id)
    remove_broker(running, node_id, force=force)
    out.say(f"broker {node_id} was removed")
    return 0
