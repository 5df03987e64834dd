"""`kops cluster up`: creates and starts a cluster on this machine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.inputs.cluster_words import DataDir, PortBase, ServerProperties, Settings, given_settings, node_words, settings_source
from kops.cli.printing.output import Output
from kops.cli.running.options import command
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.cluster.launch import UpRequest, UpResult
    from kops.cluster.layout.directory import ClusterDirectory
    from kops.cluster.layout.settings import SeedTopic
    from kops.cluster.processes.control import ControlClient

SCHEMA = "kops.cluster/v1"


@command(
    formats=("table", "json", "jsonl", "yaml"),
    examples=[
        ("Three brokers in ./kops-data; prints their addresses.", "kops cluster up"),
        (
            "One broker with a topic, in a directory that is removed when it stops.",
            "kops cluster up -n 1 --ephemeral --seed-topic orders:3:1",
        ),
        (
            "With the settings of a server.properties and another one.",
            "kops cluster up --server-properties server.properties --config num.partitions=3",
        ),
        ("Run until Ctrl-C.", "kops cluster up --foreground"),
    ],
)
def up(
    out: Output,
    brokers: Annotated[
        int | None, typer.Option("-n", "--brokers", metavar="N", help="Number of brokers (3 for a new cluster).", show_default=False)
    ] = None,
    data_dir: DataDir = None,
    port_base: PortBase = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="A temporary directory, removed when the cluster stops.", show_default=False)
    ] = False,
    config: Settings = None,
    server_properties: ServerProperties = None,
    seed_topic: Annotated[
        list[str] | None, typer.Option("--seed-topic", metavar="NAME:PARTITIONS:RF", help="A topic to create, unless it exists.")
    ] = None,
    foreground: Annotated[bool, typer.Option("--foreground/--detach", help="Stay until Ctrl-C, then stop the cluster.")] = False,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return when the cluster is up, or at once.")] = True,
    timeout: Annotated[int, typer.Option("--timeout", metavar="SECONDS", min=1, help="The longest time to wait.")] = 60,
) -> int:
    """Create a cluster in a directory, or start the existing one, and print its bootstrap address.

    Each broker is a separate process with both roles. Ids begin at 1. A supervisor manages the brokers. D/broker-N is broker N's log
    directory. D/N.properties is its server.properties; Apache Kafka can be started with it, too. Without --port-base a new cluster uses the
    ports from 9092; if they are in use, those from 10092, and so on. An existing cluster keeps its ports.

    Returns when all brokers are registered and a controller is elected. After a failure, no process and no new directory remains. If the
    cluster is already up, the command says so.
    """
    from kops.cluster.launch import UpRequest
    from kops.cluster.layout import settings

    if ephemeral and data_dir is not None:
        raise UsageError("give only one of --ephemeral and --data-dir")
    chosen = given_settings(out, config, server_properties)
    directory = _directory(data_dir, ephemeral=ephemeral)
    seeds = settings.parse_seed_topics(seed_topic or (), brokers or len(directory.node_ids()) or 3)
    if seeds and not wait:
        raise UsageError("--seed-topic cannot be used with --no-wait")
    started = time.monotonic()
    request = UpRequest(brokers, port_base, chosen, ephemeral, foreground, settings_source(config, server_properties))
    result = _bring_up(directory, request, seeds, wait=wait, timeout=timeout)
    _tell(out, directory, result, time.monotonic() - started)
    if result.attachment is not None:
        out.flush()
        _stay(out, directory, result.attachment)
    return 0


def _directory(data_dir: str | None, *, ephemeral: bool) -> ClusterDirectory:
    import tempfile

    from kops.cluster.layout.directory import DEFAULT_PATH, ClusterDirectory

    if ephemeral:
        return ClusterDirectory(tempfile.mkdtemp(prefix="kops-cluster-"))
    return ClusterDirectory(DEFAULT_PATH if data_dir is None else data_dir)


def _bring_up(directory: ClusterDirectory, request: UpRequest, seeds: list[SeedTopic], *, wait: bool, timeout: int) -> UpResult:
    import shutil

    from kops.cluster.launch import bring_up, take_down
    from kops.cluster.questions import create_topics

    try:
        result = bring_up(directory, request, wait=wait, timeout_s=timeout)
        if seeds:
            try:
                create_topics(result.bootstrap_servers, seeds)
            except BaseException:
                if not result.was_up:
                    take_down(directory)
                raise
    except BaseException:
        if request.ephemeral:
            shutil.rmtree(directory.path, ignore_errors=True)
        raise
    return result


def _tell(out: Output, directory: ClusterDirectory, result: UpResult, took_s: float) -> None:
    for note in result.notes:
        out.say(note)
    if not result.was_up:
        out.say(f"{node_words(directory)} in {directory.path}, {took_s:.2f} s")
    if out.format == "table":
        out.line(result.bootstrap_servers)
    else:
        count = len(directory.node_ids())
        document = {"data_dir": directory.path, "bootstrap_servers": result.bootstrap_servers, "was_up": result.was_up, "brokers": count}
        out.document(document, schema=SCHEMA)


def _stay(out: Output, directory: ClusterDirectory, attachment: ControlClient) -> None:
    """Report brokers that end, until Ctrl-C. The supervisor stops the cluster when this process ends in any way."""
    from kops.cluster.launch import require_supervision, stop_supervisor

    running = require_supervision(directory)
    with attachment:
        try:
            attachment.forget_events()
            out.say("Ctrl-C stops the cluster")
            for event in attachment.lines():
                out.say(str(event.get("event", "")))
            out.say("the cluster was stopped")
        except KeyboardInterrupt:
            out.say("stopping")
            stop_supervisor(running, kill=False)
            out.say("stopped")
