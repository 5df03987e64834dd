"""`scan_command`: a command of `kops scan`, with `--print-submit`, which prints the line for spark-submit instead of running the scan."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.scan.running import OnSpark
from kops.cli.running.options import Function, command

if TYPE_CHECKING:
    from kops.cli.printing.output import Output

PrintSubmit = Annotated[
    bool, typer.Option("--print-submit", help="Print the line for spark-submit that runs this scan; run nothing.", show_default=False)
]
_FOR_SPARK = ("master", "conf", "print_submit")
"""The options that become options of spark-submit, or vanish."""


def scan_command(*, formats: Sequence[str] = (), examples: Sequence[tuple[str, str]]) -> Callable[[Function], Function]:
    """As `kops.cli.running.options.command`, for a function that has the options `--master` and `--conf`."""

    def mark(function: Function) -> Function:
        signature = inspect.signature(function, eval_str=True)
        kind = inspect.Parameter.KEYWORD_ONLY

        @functools.wraps(function)
        def run(out: Output, *, context: typer.Context, print_submit: bool, **values: Any) -> int | None:
            if print_submit:
                out.abandon()  # a file of -o is for what the scan prints
                _print(context, values)
                return 0
            return function(out, **values)

        first, *own = signature.parameters.values()
        added = [
            inspect.Parameter("print_submit", kind, default=False, annotation=PrintSubmit),
            inspect.Parameter("context", kind, annotation=typer.Context),
        ]
        run.__dict__["__signature__"] = inspect.Signature([first, *(each.replace(kind=kind) for each in own), *added])
        return command(formats=formats, examples=examples)(run)  # type: ignore[return-value] # with the parameters of the wrapper

    return mark


def _print(context: typer.Context, values: dict[str, Any]) -> None:
    from kops.cli.printing.output import Output
    from kops.spark.submit import submit_line

    where = OnSpark(values["master"], values["conf"], values["task_bytes"])
    name = str(context.info_name).removeprefix("kops scan ")
    out = Output()
    out.line(submit_line(name, where.master, where.settings(), given_words(context)))
    out.commit()


def given_words(context: typer.Context) -> list[str]:
    """The options and arguments that the user gave, without those of Spark's: options first, each with its whole name."""
    options: list[str] = []
    arguments: list[str] = []
    for each in context.command.params:
        source = context.get_parameter_source(str(each.name))
        if each.name in _FOR_SPARK or source is None or source.name != "COMMANDLINE":
            continue
        value = context.params[str(each.name)]
        several = list(value) if isinstance(value, (list, tuple)) else [value]
        if each.param_type_name == "argument":
            arguments += [str(one) for one in several]
            continue
        name = max(each.opts, key=len)
        if getattr(each, "count", False):
            options += [name] * int(value)
        elif getattr(each, "is_flag", False):
            options.append(name if value else max(each.secondary_opts, key=len))
        else:
            options += [word for one in several for word in _pair(name, one)]
    return [*options, *(["--"] if any(word.startswith("-") for word in arguments) else []), *arguments]


def _pair(name: str, value: object) -> list[str]:
    """An option and its value as two words; as one where the value looks like an option."""
    return [f"{name}={value}"] if str(value).startswith("-") else [name, str(value)]
