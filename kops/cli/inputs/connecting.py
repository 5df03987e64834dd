"""Helpers of the commands that talk to a cluster: its address, the client's settings, the outcomes of several items."""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.inputs.files import read_bytes
from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running import exit_codes
from kops.errors import KopsError, NotFoundError, UnreachableError, UsageError

if TYPE_CHECKING:
    from kops.client.client import Client
    from kops.client.settings import ClientSettings

BOOTSTRAP_VARIABLE = "BOOTSTRAP_SERVERS"
DEFAULT_SERVER = "localhost:9092"
_BOOTSTRAP_HELP = "Bootstrap servers: host[:port],… (default: $BOOTSTRAP_SERVERS, else localhost:9092)."
_CONTROLLER_HELP = "Controllers to ask instead of brokers: host[:port],…"
_CONFIG_HELP = "A .properties file with Kafka's client settings."
# Names with this similarity differ by a letter or two.
_TYPING_ERROR = 0.85
_PROPERTY_HELP = "One client setting; may be given several times."

Bootstrap = Annotated[
    str | None, typer.Option("-b", "--bootstrap-server", metavar="HOST:PORT,...", help=_BOOTSTRAP_HELP, show_default=False)
]
Controllers = Annotated[
    str | None, typer.Option("--bootstrap-controller", metavar="HOST:PORT,...", help=_CONTROLLER_HELP, show_default=False)
]
CommandConfig = Annotated[str | None, typer.Option("--command-config", metavar="FILE", help=_CONFIG_HELP, show_default=False)]
CommandProperty = Annotated[list[str] | None, typer.Option("--command-property", metavar="K=V", help=_PROPERTY_HELP)]
Topics = Annotated[
    list[str] | None, typer.Argument(metavar="[TOPIC...]", help="Topics by name, or by regular expression if no topic has that name.")
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="The same as an option, for users of Kafka's tools.")
]
OUTCOME_COLUMNS = [
    Column("error", style=lambda value: "red" if value else None),
    Column("message", wide=True),
]


def client_properties(out: Output, config: str | None, properties: Sequence[str] | None) -> dict[str, str]:
    """The settings of `--command-config` and `--command-property`. Raises UsageError that names one of them, NotFoundError, DecodeError.

    As with Kafka's clients, a file may hold unknown settings: they are left out with a warning.
    """
    found: dict[str, str] = {}
    if config is not None:
        from kops.client.settings import CLIENT_CONFIG_DEF
        from kops.config.values.properties import read_properties

        for name, text in read_properties(read_bytes(config, "--command-config"), file=config).items():
            if name in CLIENT_CONFIG_DEF.keys:
                found[name] = text
                continue
            near = CLIENT_CONFIG_DEF.near(name, cutoff=_TYPING_ERROR)
            hint = f"; did you mean {near[0]}?" if near else ""
            out.warn(f"{config}: unknown setting {name}: it has no effect{hint}")
        _check_settings(found, config)
    given: dict[str, str] = {}
    if properties:
        from kops.config.topic import parse_settings

        given = parse_settings(properties, source="--command-property")
    _check_settings({**found, **given}, "--command-property")
    return found | given


def _check_settings(values: Mapping[str, str], source: str) -> None:
    """Raise UsageError, with the source's name, for invalid settings. Addresses are checked later: another source may override them."""
    from kops.client.settings import ClientSettings

    try:
        ClientSettings.from_properties({name: text for name, text in values.items() if not name.startswith("bootstrap.")})
    except UsageError as error:
        raise UsageError(f"{source}: {error}") from error


def settings_of(
    out: Output,
    bootstrap: str | None,
    config: str | None,
    properties: Sequence[str] | None,
    *,
    controllers: str | None = None,
    more: Mapping[str, str] | None = None,
    used: Collection[str] = (),
) -> ClientSettings:
    """The client's settings, in order of precedence: `more` (from flags of the command), the command line, the file, the environment.

    `used` are settings that have an effect only in this command.
    """
    from kops.client.settings import ClientSettings, parse_addresses, unused

    values = client_properties(out, config, properties)
    if bootstrap is not None and controllers is not None:
        raise UsageError("--bootstrap-server and --bootstrap-controller exclude each other")
    if bootstrap is not None:
        values["bootstrap.servers"] = bootstrap
        values.pop("bootstrap.controllers", None)
    elif controllers is not None:
        values["bootstrap.controllers"] = controllers
        values.pop("bootstrap.servers", None)
    elif "bootstrap.servers" not in values and "bootstrap.controllers" not in values:
        values["bootstrap.servers"] = os.environ.get(BOOTSTRAP_VARIABLE) or DEFAULT_SERVER
    settings = ClientSettings.from_properties(values | dict(more or {}))
    parse_addresses(settings.bootstrap_servers or settings.bootstrap_controllers)
    for name in unused(values):
        if name not in used:
            out.detail(f"{name} has no effect here")
    return settings


@contextmanager
def connect(
    out: Output,
    bootstrap: str | None,
    config: str | None,
    properties: Sequence[str] | None,
    *,
    controllers: str | None = None,
    more: Mapping[str, str] | None = None,
    used: Collection[str] = (),
) -> Iterator[Client]:
    """Connect, and close the client at the end of the `with`."""
    from kops import __version__
    from kops.client.client import Client
    from kops.client.network import NetworkClient

    settings = settings_of(out, bootstrap, config, properties, controllers=controllers, more=more, used=used)
    with Client(settings, network=NetworkClient(settings, software_version=__version__)) as client:
        client.on_wait = lambda text: out.say(f"still trying: {text}")
        try:
            yield client
        except UnreachableError as error:
            if client.network.has_answer or bootstrap is not None or settings.bootstrap_servers != (DEFAULT_SERVER,):
                raise
            raise UnreachableError(f"{error} ({_where_else()})") from error


def _where_else() -> str:
    """Return a hint for the user if no server was given and the default address does not answer."""
    from kops.cluster.launch import running_directories
    from kops.cluster.layout.directory import DEFAULT_PATH, ClusterDirectory

    here = ClusterDirectory(DEFAULT_PATH).path
    running = running_directories()
    if not running:
        return f"name a server with -b or ${BOOTSTRAP_VARIABLE}, or start a cluster with kops cluster up"
    path = here if here in running else min(running)
    named = "" if path == here or len(running) == 1 else f" --data-dir {shlex.quote(path)}"
    return f'the cluster in {path} is at {ClusterDirectory(path).bootstrap_servers()}: -b, or eval "$(kops cluster env{named})"'


def wanted_topics(topics: Sequence[str] | None, option: Sequence[str] | None) -> list[str]:
    """The topics of the arguments and of `--topic`."""
    return [*(topics or ()), *(option or ())]


def need_topics(topics: Sequence[str] | None, option: Sequence[str] | None) -> list[str]:
    """Like `wanted_topics`, but at least one topic. Raises UsageError."""
    wanted = wanted_topics(topics, option)
    if not wanted:
        raise UsageError("name a topic")
    return wanted


def outcome(error: KopsError | None) -> dict[str, Any]:
    """The columns for an item's outcome: the error's name and message, null if there was no error."""
    if error is None:
        return {"error": None, "message": None}
    return {"error": getattr(error, "name", type(error).__name__), "message": str(error)}


def report(out: Output, items: Iterable[tuple[str, KopsError | None]]) -> int:
    """Report the failed items on stderr: as warnings, or as errors if all items failed.

    Returns the exit code and sets it in `out`: 0 if none failed, the code of the failures if they have the same one, else 1.
    """
    outcomes = list(items)
    failures = [(name, error) for name, error in outcomes if error is not None]
    for name, error in failures:
        code = getattr(error, "name", None)
        words = f"{name}: {error}" if code is None or code in str(error) else f"{name}: {error} ({code})"
        (out.fail if len(failures) == len(outcomes) else out.warn)(words)
    codes = {exit_codes.of_error(error, ()) for _, error in failures}
    status = 0 if not codes else codes.pop() if len(codes) == 1 else exit_codes.PLAIN_FAILED
    out.status = out.status or status
    return status


def parse_partitions(texts: Sequence[str] | None) -> list[int]:
    """Parse numbers, lists and ranges of partitions: `0`, `0,2`, `1-3`. Raises UsageError."""
    found: dict[int, None] = {}
    for part in (part.strip() for text in texts or () for part in text.split(",")):
        first, dash, last = part.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()) or (dash and int(last) < int(first)):
            raise UsageError(f"--partition {part}: not allowed; allowed: a partition's number, a list 0,2 or a range 1-3")
        found |= dict.fromkeys(range(int(first), int(last or first) + 1))
    return list(found)


def known_words(texts: Sequence[str] | None, known: Sequence[str], option: str) -> list[str]:
    """The words of a list in Kafka's spelling; upper and lower case do not matter. Raises UsageError for others."""
    found = []
    for text in [part.strip() for each in texts or () for part in each.split(",")]:
        name = next((name for name in known if name.lower() == text.lower()), None)
        if name is None:
            raise UsageError(f"{option} {text}: not allowed; allowed: {', '.join(known)}")
        found.append(name)
    return found


def parse_broker_ids(text: str, option: str) -> list[int]:
    """Parse `1,2,3`. Raises UsageError that names the option."""
    ids = [part.strip() for part in text.split(",")]
    if not all(one.isdigit() for one in ids) or len(set(ids)) < len(ids):
        raise UsageError(f"{option} {text}: not allowed; allowed: different broker ids, such as 1,2,3")
    return [int(one) for one in ids]


def parse_assignment(text: str) -> list[list[int]]:
    """Parse Kafka's `--replica-assignment`: colons between the brokers of a partition, commas between partitions. Raises UsageError."""
    rows = [part.split(":") for part in text.split(",")]
    numbers = [[int(one) for one in row if one.strip().isdigit()] for row in rows]
    whole = all(len(row) == len(taken) and len(set(taken)) == len(taken) for row, taken in zip(rows, numbers, strict=True))
    if not whole or len({len(row) for row in numbers}) != 1:
        why = "different brokers for each partition, the same number for all, such as 1:2,2:3"
        raise UsageError(f"--replica-assignment {text}: not allowed; allowed: {why}")
    return numbers


def no_such(kind: str, names: Iterable[object]) -> NotFoundError:
    """The error for missing things."""
    return NotFoundError(f"no such {kind}: {', '.join(map(str, names))}")
