"""The entry point `kops`: finds the command, runs it, and turns every outcome into an exit code and at most one line of text.

The help of `kops` and of its groups comes from `kops.cli.running.tree` alone. Typer and the module of a command are imported only when that
command is built. Messages (errors, progress) go to stderr, data to stdout. A reader that exits early (`| head`) is not an error.
"""

from __future__ import annotations

import gc
import sys

from kops.cli.running import exit_codes, tree
from kops.cli.running.boundary import Boundary
from kops.cli.running.command_line import COMMON, HELP_FLAGS, VERSION_FLAGS, Stop

# A command creates millions of objects and hardly any cycles. Collecting after every 700 objects would take a tenth of a command's time.
GC_THRESHOLD = 20_000

INTRO = """\
Usage: kops [GROUP] COMMAND [OPTIONS] [ARGUMENTS]

  kops runs Kafka clusters on this machine, works with running clusters, and reads, verifies, rebuilds and recovers
  log directories of Apache Kafka. It is byte-compatible with Kafka 4.3 on the wire and on disk.
"""
OUTRO = """
Options of every command:
  --format FORMAT  How to print: table, wide, json, jsonl, yaml or csv
  -o FILE          Write to FILE (under a temporary name until it is complete)
  -q, -v           Fewer messages, more messages
  --no-color       No colour (also: NO_COLOR in the environment)
  -h, --help       Show this help, that of a group (kops log --help), or that of a command with examples (kops log ls --help)
  -V, --version    Show the version
"""


def main(argv: list[str] | None = None) -> int:
    """Run one command line; returns the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    gc.set_threshold(GC_THRESHOLD)
    boundary = Boundary(())
    with boundary:
        boundary.code = _dispatch(arguments, boundary)
    return boundary.code


def _dispatch(arguments: list[str], boundary: Boundary) -> int:
    path: tuple[str, ...] = ()
    hoisted: list[str] = []
    while arguments:
        token = arguments.pop(0)
        if token in HELP_FLAGS:
            return _print(group_help(path))
        if token in VERSION_FLAGS and not path:
            return _print(version_text())
        if token.startswith("-"):
            hoisted += _hoist(token, arguments, path)
            continue
        path = (*path, token)
        boundary.path = path
        entry = tree.find(path)
        if entry is not None:
            from kops.cli.running.options import run

            return run(entry, hoisted + arguments, boundary)
        if not tree.is_group(path):
            raise Stop(_unknown_command(path), path)
    if not path and not hoisted:
        _print(group_help(path))
        return exit_codes.PLAIN_USAGE
    names = ", ".join(name for name, _ in tree.children(path))
    raise Stop(f"{' '.join(('kops', *path))} needs a command: {names}", path)


def _hoist(token: str, arguments: list[str], path: tuple[str, ...]) -> list[str]:
    """Take a common option, with its value, from before the command's name."""
    name, equals, _ = token.partition("=")
    if name not in COMMON or (equals and not COMMON[name]):
        raise Stop(f"no such option before a command: {name}{_suggestion(name, list(COMMON))}", path)
    if not COMMON[name] or equals:
        return [token]
    if not arguments:
        raise Stop(f"option {name} needs a value", path)
    if arguments[0].startswith("--") and arguments[0].partition("=")[0] in COMMON:
        raise Stop(f"option {name} needs a value, and {arguments[0]} is an option", path)
    return [token, arguments.pop(0)]


def _unknown_command(path: tuple[str, ...]) -> str:
    typed = path[-1]
    elsewhere = [entry.name for entry in tree.COMMANDS if entry.path[-1] == typed]
    if elsewhere:
        hint = f", did you mean {' or '.join(elsewhere)}?"
    else:
        hint = _suggestion(typed, [name for name, _ in tree.children(path[:-1])], prefix=" ".join(("kops", *path[:-1], "")))
    return f"no such command: {' '.join(('kops', *path))}{hint}"


def _suggestion(typed: str, known: list[str], prefix: str = "") -> str:
    """`, did you mean X?` for the nearest of the known words, or nothing."""
    from difflib import get_close_matches

    near = get_close_matches(typed, known, n=1, cutoff=0.6)
    return f", did you mean {prefix}{near[0]}?" if near else ""


def version_text() -> str:
    """The output of `kops --version`."""
    import kops

    return f"kops {kops.__version__}\n"


def group_help(path: tuple[str, ...]) -> str:
    """The help of `kops` (empty path) or of a group."""
    rows = tree.children(path)
    width = max(len(name) for name, _ in rows) + 2
    lines = [f"  {name:<{width}}{help}" for name, help in rows]
    if not path:
        return INTRO + "\nCommands:\n" + "\n".join(lines) + "\n" + OUTRO
    name = " ".join(("kops", *path))
    head = f"Usage: {name} COMMAND [OPTIONS] [ARGUMENTS]\n\n  {tree.GROUPS[path]}.\n\nCommands:\n"
    codes = [f"  {code:<4}{meaning}" for code, meaning in exit_codes.meanings(path)]
    title = "Exit codes (a sum):" if exit_codes.sums(path) else "Exit codes:"
    return "\n".join([head + "\n".join(lines), "", title, *codes, "", f"{name} COMMAND --help has examples.", ""])


def _print(text: str) -> int:
    from kops.cli.printing.sink import StdoutSink

    sink = StdoutSink()
    sink.write(text.encode())
    sink.commit()
    return 0
