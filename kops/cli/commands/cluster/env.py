"""`kops cluster env`: prints a cluster's address for a shell."""

from __future__ import annotations

from kops.cli.inputs.cluster_words import AnyDataDir
from kops.cli.printing.output import Output
from kops.cli.running.options import command
from kops.errors import KopsError

SCHEMA = "kops.cluster.env/v1"


@command(
    formats=("table", "json", "jsonl", "yaml"),
    examples=[("Set it in this shell.", 'eval "$(kops cluster env)"'), ("As JSON.", "kops cluster env --format json")],
)
def env(out: Output, data_dir: AnyDataDir = None) -> int:
    """Print export BOOTSTRAP_SERVERS=... for a shell."""
    import shlex

    from kops.cluster.launch import locate

    directory = locate(data_dir, look_around=True)
    directory.require()
    if not directory.broker_ids():
        raise KopsError(f"{directory.path}: no node there is a broker")
    variables = {"BOOTSTRAP_SERVERS": directory.bootstrap_servers()}
    if out.format == "table":
        for name, value in variables.items():
            out.line(f"export {name}={shlex.quote(value)}")
    else:
        out.document(variables, schema=SCHEMA)
    return 0
