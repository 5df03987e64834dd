"""`kops cluster status`: shows the brokers of a cluster and their states."""

from __future__ import annotations

from typing import Any

from kops.cli.inputs.cluster_words import BROKER_COLUMNS, AnyDataDir
from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import PLAIN_FAILED
from kops.cli.running.options import command

SCHEMA = "kops.cluster/v1"


def _explain(out: Output, broker: dict[str, Any]) -> None:
    """Print why a broker is down although it was not stopped."""
    from kops.cluster.processes.broker_process import exit_words

    if broker["state"] in ("stopped", "ended") and broker["error"]:
        out.say(f"broker {broker['id']}: {broker['error']}")
    elif broker["state"] == "ended":
        out.say(f"broker {broker['id']} has ended: {exit_words(broker['exit_code'])} (kops cluster broker start {broker['id']})")


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("The cluster in ./kops-data.", "kops cluster status"),
        ("For a program.", "kops cluster status --format json | jq .brokers[0].address"),
    ],
)
def status(out: Output, data_dir: AnyDataDir = None) -> int:
    """Show a cluster's brokers: process, address, state, and which one is the active controller.

    A broker is stopped, starting, recovery (it loads logs after an unclean stop), running, paused, stopping, ended (by itself) or orphaned
    (it runs although the supervisor was killed). Exit code 1: not all brokers run.
    """
    from kops.cluster.launch import locate
    from kops.cluster.view import describe

    found = describe(locate(data_dir, look_around=True))
    brokers = found.pop("brokers")
    if out.format in ("table", "wide"):
        state = "partly up" if found["state"] == "partly" else found["state"]
        out.say(f"{found['data_dir']} is {state}" + (f" (cluster {found['cluster_id']})" if found["cluster_id"] else ""))
    out.rows(brokers, BROKER_COLUMNS, schema=SCHEMA, key="brokers", **found)
    if out.format == "table":
        out.flush()
        for broker in brokers:
            _explain(out, broker)
    if found["state"] == "orphaned":
        out.say("the supervisor was killed: kops cluster restart starts everything again, kops cluster down stops the brokers")
    return 0 if found["state"] == "up" else PLAIN_FAILED
