"""Helpers of the commands `kops group ...`: the choice of groups and topics, and warnings about brokers that did not answer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.running.exit_codes import PLAIN_FAILED
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client

_CLEAR = "\x1b[H\x1b[2J"
Groups = Annotated[list[str] | None, typer.Argument(metavar="[GROUP...]", help="Groups by id.")]
GroupOption = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="The same as an option, for users of Kafka's tools.")
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="All groups of consumers.")]
Watch = Annotated[
    float | None, typer.Option("--watch", metavar="S", min=0.1, help="Repeat every S seconds, until Ctrl-C.", show_default=False)
]
TopicScope = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC[:N,...]", help="A topic, or some of its partitions; may be given several times."),
]


def chosen_groups(client: Client, groups: Sequence[str] | None, option: Sequence[str] | None, *, everything: bool) -> list[str]:
    """Return the ids of the chosen groups. Raises UsageError if there is none, or if groups are chosen in both ways."""
    named = list(dict.fromkeys([*(groups or ()), *(option or ())]))
    if bool(named) == everything:
        raise UsageError("name a group, or give --all-groups" if not named else "--all-groups cannot be used with the names of groups")
    if named:
        return named
    from kops.client.coordinators.groups import consumer_group_ids

    return consumer_group_ids(client)


def show_again(out: Output, every_s: float | None, show: Callable[[], int]) -> int:
    """Show something once, or repeat it until Ctrl-C or until the reader exits. Returns the exit code."""
    while True:
        status = show()
        if every_s is None:
            return status
        out.flush()
        time.sleep(every_s)
        out.check_reader()
        if out.format in ("table", "wide"):
            out.line(_CLEAR if out.is_terminal else "")


def tell_brokers(out: Output, errors: Mapping[int, KopsError]) -> None:
    """Warn about brokers that did not answer. The exit code then says that the command partly failed."""
    for node_id, error in errors.items():
        out.warn(f"broker {node_id}: {error}")
        out.status = out.status or PLAIN_FAILED
