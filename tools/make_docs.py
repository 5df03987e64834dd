"""Write docs/configuration.md, docs/errors.md and docs/rooms.md, and the picture of the rooms in ARCHITECTURE.md, from the source:
`python -m tools.make_docs` (or `make docs`).

`--check` only compares them.
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
from tools import rooms

PROJECT = Path(__file__).resolve().parent.parent
EFFECTS: Final = {"used": "used", "none": "no effect", "refused": "refused"}
REACTIONS: Final = {
    Reaction.PLAIN: "",
    Reaction.RETRIABLE: "yes, unchanged",
    Reaction.REFRESH: "yes, after finding the coordinator again",
    Reaction.METADATA: "yes, with new metadata",
    Reaction.RECOVERABLE: "yes, with a new producer or member",
    Reaction.FATAL: "no, not before the setup is changed",
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
        f"This page lists all {len(SETTINGS)} settings of a node of Apache Kafka 4.3, by their names in `server.properties`, and what each",
        "does in a kops node:",
        "",
        f"- {count['used']} are **used** as Kafka uses them. A difference is named beside the setting.",
        f"- {count['none']} are accepted but have **no effect**. A node logs each of these that is set, with the reason, when it starts.",
        f"- {count['refused']} are **refused** if they are set to anything but their default.",
        "",
        "A value that is not allowed is an error with Kafka's text.",
        "",
        "A file may contain any other setting. kops keeps it, because in Kafka plug-ins read such settings (`super.users`), and warns",
        "when a command or a node reads the file. `DescribeConfigs` shows it as Kafka does, without its value.",
        "The option `--config K=V` and the argument `config` of `kops.Cluster` reject an unknown setting, because it is probably a typo.",
        "",
        "The column *at run time* says where a setting can be changed while nodes run (`kafka-configs.sh --entity-type brokers`): `broker`",
        "for one broker, `cluster` for one broker or for all.",
        "",
        "`make docs` writes this page from the tables in `kops/config/broker_keys`. A test compares it.",
        "",
    ]
    for module in (broker_keys_node, broker_keys_coordinators, broker_keys_security):
        for name, title in TITLES.items():
            settings: tuple[Setting, ...] = getattr(module, name, ())
            if settings:
                lines += [f"## {title}", "", *table(settings), ""]
    lines += ["## At run time only", "", "These limits, in bytes a second, cannot be set in a file.", ""]
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
        f"This page lists the {len(ERRORS)} error codes of Apache Kafka 4.3 on the wire. The column *try again* says what a client should",
        "do, by the class of Kafka's exception for the code. It is empty where that depends on the request.",
        "",
        "`make docs` writes this page from the table in `kops/protocol/errors.py`, which is tested beside Kafka's own.",
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
    """The text of each generated file, by its path in the project."""
    found = rooms.Rooms()
    return {
        "docs/configuration.md": configuration(),
        "docs/errors.md": errors(),
        "docs/rooms.md": rooms.page(found),
        "ARCHITECTURE.md": rooms.placed((PROJECT / "ARCHITECTURE.md").read_text(), found),
    }


def differences() -> list[str]:
    """A sentence for each file that is not current."""
    made = documents()
    there = {name: (PROJECT / name).read_text() if (PROJECT / name).exists() else None for name in made}
    return [f"{name} is not current" for name, text in made.items() if there[name] != text]


def main() -> int:
    """Write or check the documents."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="only compare; exit code 1 when something is not current")
    if parser.parse_args().check:
        stale = differences()
        print("\n".join(stale) or "all documents are current")
        return 1 if stale else 0
    for name, text in documents().items():
        (PROJECT / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
