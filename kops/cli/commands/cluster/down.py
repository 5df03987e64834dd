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

    Each broker hands over its partitions, flushes everything and writes the clean-shutdown marker, as Kafka's brokers do on SIGTERM.
    Brokers of a supervisor that was killed are stopped as well.
    """
    return _end(out, data_dir, kill=False)


@command(examples=[("Kill every broker, as kill -9 does.", "kops cluster kill")])
def kill(out: Output, data_dir: DataDir = None) -> int:
    """Kill all brokers and their supervisor, as kill -9 does.

    Nothing is flushed. The next start recovers the logs, as after a crash.
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
