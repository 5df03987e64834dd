"""Write docs/configuration.md and docs/errors.md from the tables in the source: `python tools/make_docs.py` (or `make docs`).

`--check` only compares.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from kops.config.broker.dynamic_keys import CLUSTER_WIDE, PER_BROKER, QUOTA_KEYS
from kops.config.broker_keys import coordinators as broker_keys_coordinators
from kops.config.broker_keys import node as broker_keys_node
from kops.config.broker_keys import security as broker_keys_security
from kops.config.broker_keys.marks import Setting
from kops.config.broker_keys.table import MARKS, SETTINGS
from kops.config.values.definition import ConfigKey, java_text
from kops.protocol.errors import ERRORS, ErrorCode, Reaction

DOCS = Path(__file__).resolve().parent.parent / "docs"
EFFECTS: Final = {"used": "used", "none": "no effect", "refused": "refused"}
REACTIONS: Final = {
    Reaction.PLAIN: "",
    Reaction.RETRIABLE: "again, as it is",
    Reaction.REFRESH: "again, when the coordinator is known anew",
    Reaction.METADATA: "again, with new metadata",
    Reaction.RECOVERABLE: "with a new producer or member",
    Reaction.FATAL: "not before something is set up otherwise",
}
TITLES: Final = {
    "REMOTE_STORAGE": "Remote storage",
    "SERVER": "Server",
    "KRAFT": "Roles and registration",
    "METADATA_LOG": "The metadata log",
    "SOCKET_SERVER": "Listeners and connections",
    "REPLICATION": "Replication",
    "GROUP_COORDINATOR": "Groups",
    "LOG_CLEANER": "The log cleaner",
    "LOG": "Logs",
    "SHARE_GROUP": "Share groups",
    "SHARE_COORDINATOR": "The share coordinator",
    "TRANSACTIONS": "Transactions",
    "QUORUM": "The controller quorum",
    "METRICS": "Metrics",
    "QUOTAS": "Quotas",
    "SECURITY": "TLS and SASL",
    "DELEGATION_TOKENS": "Delegation tokens",
    "ADD_PARTITIONS_TO_TXN": "Partitions of a transaction",
}


def configuration() -> str:
    """docs/configuration.md."""
    count = {effect: sum(mark.effect == effect for mark in MARKS.values()) for effect in EFFECTS}
    lines = [
        "# Settings of a node",
        "",
        f"All {len(SETTINGS)} settings that a node of Apache Kafka 4.3 knows, by their names in `server.properties`, and what",
        f"each does in a kops node: {count['used']} are used as Kafka uses them, {count['none']} are accepted without effect (a node says",
        f"so when it starts, and why), {count['refused']} are refused where they are set to anything but their default. What is not",
        "allowed is told with Kafka's words.",
        "",
        "Any other setting may stand in a file, as in Kafka, where plug-ins read such settings (`super.users`): it is kept, a command that",
        "reads the file and the node that starts warn, and `DescribeConfigs` shows it as Kafka does, without its value. The option",
        "`--config K=V` and the argument `config` of `kops.Cluster` refuse it: there it is most likely a typing error.",
        "",
        "*At run time*: `broker` may be changed for one broker, `cluster` also for all (`kafka-configs.sh --entity-type brokers`).",
        "This page is written by `make docs` from the tables in `kops/config/broker_keys`; a test compares it.",
        "",
    ]
    for module in (broker_keys_node, broker_keys_coordinators, broker_keys_security):
        for name, title in TITLES.items():
            settings: tuple[Setting, ...] = getattr(module, name, ())
            if settings:
                lines += [f"## {title}", "", *table(settings), ""]
    lines += ["## At run time only", "", "Limits in bytes a second that stand in no file.", ""]
    lines += ["| setting | type | default | allowed | at run time |", "| --- | --- | --- | --- | --- |"]
    lines += [f"| {' | '.join((*described(key), changes(key.name)))} |" for key in QUOTA_KEYS]
    return "\n".join(lines) + "\n"


def table(settings: Iterable[Setting]) -> list[str]:
    """The rows of a section."""
    rows = ["| setting | type | default | allowed | at run time | here |", "| --- | --- | --- | --- | --- | --- |"]
    for setting in settings:
        mark = EFFECTS[setting.mark.effect] + (f": {setting.mark.why}" if setting.mark.why else "")
        rows.append(f"| {' | '.join((*described(setting.key), changes(setting.key.name), mark))} |")
    return rows


def described(key: ConfigKey) -> tuple[str, str, str, str]:
    """Name, type, default and limits of a setting."""
    if key.required:
        default = "must be set"
    elif isinstance(key.default, list):
        default = code(",".join(key.default))
    else:
        default = "" if key.default is None else code(java_text(key.default))
    return code(key.name), key.kind, default, cell(key.allowed if key.validator is not None else "")


def changes(name: str) -> str:
    """Where a setting may be changed at run time."""
    return "broker" if name in PER_BROKER else "cluster" if name in CLUSTER_WIDE else ""


def errors() -> str:
    """docs/errors.md."""
    lines = [
        "# Error codes",
        "",
        f"The {len(ERRORS)} error codes of Apache Kafka 4.3 on the wire, and what Kafka's exception of each tells a client to do:",
        "try again as it is, ask first who is in charge now, begin anew, or give up until something is set up otherwise; nothing where it",
        "depends on the request.",
        "This page is written by `make docs` from the table in `kops/protocol/errors.py`, which is tested beside",
        "Kafka's own.",
        "",
        "| code | name | what it says | try again |",
        "| ---: | --- | --- | --- |",
    ]
    lines += [f"| {' | '.join(error_cells(error))} |" for error in ERRORS]
    return "\n".join(lines) + "\n"


def error_cells(error: ErrorCode) -> tuple[str, ...]:
    """A row about an error."""
    return str(error.code), code(error.name), cell(error.words), REACTIONS[error.reaction]


def code(text: str) -> str:
    """Text as code in a table's cell."""
    return f"`{cell(text)}`" if text else ""


def cell(text: str) -> str:
    """Text in a table's cell."""
    return text.replace("|", "\\|")


def documents() -> dict[str, str]:
    """What is written, by file name."""
    return {"configuration.md": configuration(), "errors.md": errors()}


def differences() -> list[str]:
    """What is not current below `docs/`, a sentence each."""
    there = {name: (DOCS / name).read_text() if (DOCS / name).exists() else None for name in documents()}
    return [f"{name} is not current" for name, text in documents().items() if there[name] != text]


def main() -> int:
    """Write or check the documents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit code 1 when something is not current")
    if parser.parse_args().check:
        stale = differences()
        print("\n".join(stale) or "docs/ is current")
        return 1 if stale else 0
    for name, text in documents().items():
        (DOCS / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
