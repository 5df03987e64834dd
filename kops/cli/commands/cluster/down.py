"""`kops cluster down` and `kops cluster kill`: stop a cluster."""

from __future__ import annotations

import shlex

from kops.cli.inputs.cluster_words import DataDir
from kops.cli.printing.output import Output
from kops.cli.running.options import command


@command(
    examples=[
        ("Stop the cluster in ./kops-data.", "kops cluster down"),
        ("Stop another one.", "kops cluster down --data-dir /tmp/cluster"),
    ]
)
def down(out: Output, data_dir: DataDir = None) -> int:
    """Stop all brokers cleanly, and their supervisor.

    Each broker hands its partitions over, flushes everything and leaves the marker of a clean stop, as Kafka's brokers do on SIGTERM.
    Brokers that a killed supervisor left behind are stopped as well.
    """
    return _end(out, data_dir, kill=False)


@command(examples=[("As kill -9 of every broker.", "kops cluster kill")])
def kill(out: Output, data_dir: DataDir = None) -> int:
    """Kill all brokers and their supervisor, as kill -9 does.

    Nothing is flushed. The next start recovers, as after a crash.
    """
    return _end(out, data_dir, kill=True)


def _end(out: Output, data_dir: str | None, *, kill: bool) -> int:
    from kops.cluster.launch import locate, take_down

    directory = locate(data_dir)
    out.resume = f"kops cluster {'kill' if kill else 'down'} --data-dir {shlex.quote(directory.path)}"
    done = take_down(directory, kill=kill)
    for sentence in done:
        out.say(sentence)
    if not done:
        out.say(f"{directory.path} is down")
    return 0
