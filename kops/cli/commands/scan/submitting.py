"""`scan_command`: a command of `kops scan`, with the options that all of them have.

One of them is `--print-submit`, which prints the line for spark-submit instead of running the scan.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kops.cli.commands.scan.running import (
    FORMATS,
    TASK_BYTES,
    As,
    Conf,
    Master,
    OnSpark,
    Out,
    Scan,
    StateDir,
    TaskBytes,
    kept_state,
    tell_state,
)
from kops.cli.running.options import command

if TYPE_CHECKING:
    from kops.cli.printing.output import Output

PrintSubmit = Annotated[
    bool, typer.Option("--print-submit", help="Print the line for spark-submit that runs this scan; run nothing.", show_default=False)
]
_Command = Callable[..., int | None]
_FOR_SPARK = ("master", "conf", "print_submit")
"""The options that become options of spark-submit, or vanish."""


def scan_command(
    *, examples: Sequence[tuple[str, str]], writes: bool = False, keeps: bool = False, as_: Any = As
) -> Callable[[_Command], _Command]:
    """As `kops.cli.running.options.command`, for a function that gets the output, a `Scan`, and its own options.

    The command also has `--master`, `--task-bytes`, `--conf` and `--print-submit`; with `writes` also `--out` and `--as` (declared by
    `as_`), with `keeps` also `--state`, and says what the state saved.
    """
    options: list[tuple[str, Any, Any]] = [
        *((("target", None, Out), ("as_", None, as_)) if writes else ()),
        *((("state", None, StateDir),) if keeps else ()),
        ("master", None, Master),
        ("task_bytes", TASK_BYTES, TaskBytes),
        ("conf", None, Conf),
        ("print_submit", False, PrintSubmit),
    ]
    kind = inspect.Parameter.KEYWORD_ONLY

    def mark(function: _Command) -> _Command:
        signature = inspect.signature(function, eval_str=True)

        @functools.wraps(function)
        def run(out: Output, *, context: typer.Context, print_submit: bool, **values: Any) -> int | None:
            where = OnSpark(values.pop("master"), values.pop("conf"), values.pop("task_bytes"))
            if print_submit:
                out.abandon()  # a file of -o is for what the scan prints
                _print(context, where)
                return 0
            from kops.forensics.inventory.replicas import check_paths

            if "paths" in values:  # Images may have any contents.
                check_paths(values["paths"])  # Now, because Spark takes seconds to start.
            target, shape = (values.pop("target"), values.pop("as_")) if writes else (None, None)
            state = kept_state(values.pop("state"), values["paths"]) if keeps else None
            status = function(out, Scan(function.__name__, where, target, shape, state), **values)
            tell_state(out, state)
            return status

        first, _, *own = signature.parameters.values()
        added = [inspect.Parameter(name, kind, default=default, annotation=annotation) for name, default, annotation in options]
        context = inspect.Parameter("context", kind, annotation=typer.Context)
        run.__dict__["__signature__"] = inspect.Signature([first, *(each.replace(kind=kind) for each in own), *added, context])
        return command(formats=FORMATS, examples=examples)(run)

    return mark


def _print(context: typer.Context, where: OnSpark) -> None:
    from kops.cli.printing.output import Output
    from kops.spark.submit import submit_line

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
