"""The parameters of commands as plain data, made from Typer's: for the manual pages, shell completion and tests."""

from __future__ import annotations

import inspect
import re
from typing import Any

from kops.cli.running import tree
from kops.cli.running.command_line import HELP_FLAGS
from kops.cli.running.options import COMMON_NAMES, KopsCommand, argument_name, build, load

_CHOICES = re.compile(r"[a-z0-9_-]+(?:\|[a-z0-9_-]+)+\Z")


class Parameter:
    """An option or an argument. `flags` is empty for an argument. `value` is the name of its value, None for a switch."""

    __slots__ = ("choices", "common", "default", "flags", "help", "many", "required", "value")

    def __init__(self, flags: tuple[str, ...], value: str | None, help: str, choices: tuple[str, ...]) -> None:
        self.flags = flags
        self.value = value
        self.help = help
        self.choices = choices
        self.default = ""
        self.many = False
        self.required = False
        self.common = False


class Page:
    """One command: its place in the tree, its text, its parameters, its examples."""

    __slots__ = ("arguments", "entry", "examples", "options", "text", "usage")

    def __init__(self, entry: tree.Entry, command: KopsCommand) -> None:
        self.entry = entry
        self.examples = command.spec.examples
        self.text = inspect.cleandoc(load(entry).__doc__ or "")
        self.arguments: list[Parameter] = []
        self.options: list[Parameter] = []
        with command.make_context(entry.name, [], resilient_parsing=True) as context:
            self.usage = " ".join(command.collect_usage_pieces(context))
            for parameter in command.params:
                if not getattr(parameter, "hidden", False):
                    made = _parameter(parameter, context, command.spec.formats)
                    (self.options if made.flags else self.arguments).append(made)
        help = Parameter(HELP_FLAGS, None, "Show the help and exit.", ())
        help.common = True
        self.options.append(help)


def page(entry: tree.Entry) -> Page:
    """The page of one command; imports its module."""
    return Page(entry, build(entry))


def pages() -> list[Page]:
    """The pages of all commands in the tree's order."""
    return [page(entry) for entry in tree.COMMANDS]


def _parameter(parameter: Any, context: Any, formats: tuple[str, ...]) -> Parameter:
    is_option = parameter.param_type_name == "option"
    flags = (*parameter.opts, *parameter.secondary_opts) if is_option else ()
    switch = is_option and (parameter.is_flag or parameter.count)
    value = None if switch else parameter.metavar or _value_name(parameter, context) if is_option else argument_name(parameter).strip("[]")
    made = Parameter(flags, value, parameter.help or "", _choices(parameter, formats))
    made.required = parameter.required
    made.many = is_option and (parameter.multiple or parameter.count)
    made.common = parameter.name in COMMON_NAMES
    if is_option and not switch and parameter.show_default and parameter.default not in (None, (), [], ""):
        made.default = str(parameter.default)
    return made


def _value_name(parameter: Any, context: Any) -> str:
    return str(parameter.display_type(context)).strip("<>").upper()


def _choices(parameter: Any, formats: tuple[str, ...]) -> tuple[str, ...]:
    if parameter.name == "format_":
        return formats
    descriptor = parameter.type_descriptor
    if descriptor.is_choice:
        return tuple(str(getattr(choice, "value", choice)) for choice in descriptor.choices or ())
    if parameter.metavar and _CHOICES.match(parameter.metavar):
        return tuple(parameter.metavar.split("|"))
    return ()
