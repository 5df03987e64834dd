"""Makes commands from functions: adds the common options and the help with its examples, and runs them.

`command` marks a function as a command. `build` makes a Typer command from it, with `--format -o -q -v --no-color` added. `run` runs it.
"""

from __future__ import annotations

import importlib
import inspect
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, cast, get_args, get_origin

import typer
from typer.core import TyperCommand, TyperOption

from kops.cli.printing.output import FORMATS, Output
from kops.cli.printing.sink import OutputClosed
from kops.cli.running import exit_codes
from kops.cli.running.command_line import Stop
from kops.errors import UsageError

if TYPE_CHECKING:
    from kops.cli.running.boundary import Boundary
    from kops.cli.running.tree import Entry

Function = TypeVar("Function", bound=Callable[..., int | None])
HELP_WIDTH = 110
# The file names of Kafka in a log directory: -o never replaces such a file.
KAFKA_ENDINGS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".deleted", ".cleaned", ".swap")
KAFKA_NAMES = (
    "meta.properties",
    "partition.metadata",
    "quorum-state",
    "bootstrap.checkpoint",
    "leader-epoch-checkpoint",
    "recovery-point-offset-checkpoint",
    "replication-offset-checkpoint",
    "log-start-offset-checkpoint",
    "cleaner-offset-checkpoint",
    ".kafka_cleanshutdown",
    ".lock",
)


class Spec:
    """A command's formats (the first is the default) and examples, and the option that takes all arguments after it ("" if none does)."""

    __slots__ = ("examples", "formats", "takes_rest")

    def __init__(self, formats: tuple[str, ...], examples: tuple[tuple[str, str], ...], takes_rest: str = "") -> None:
        self.formats = formats
        self.examples = examples
        self.takes_rest = takes_rest


def command(*, formats: Sequence[str] = (), examples: Sequence[tuple[str, str]], takes_rest: str = "") -> Callable[[Function], Function]:
    """Mark a function as a command.

    `formats`: the supported ones of `table wide json jsonl yaml csv`, and the command's own (such as `kafka`), the default first. Without
    formats the command has no `--format`. `examples`: `(what it does, the command line)`, at least one; a test parses all of them.
    `takes_rest`: a repeatable option. All arguments after its first use are values of it.
    """

    def mark(function: Function) -> Function:
        function.__dict__["kops"] = Spec(tuple(formats), tuple(examples), takes_rest)
        return function

    return mark


def load(entry: Entry) -> Callable[..., int | None]:
    """The function of a command; imports its module."""
    module, _, name = entry.target.partition(":")
    return cast("Callable[..., int | None]", getattr(importlib.import_module(f"kops.cli.commands.{module}"), name))


def spec_of(function: Callable[..., int | None]) -> Spec:
    """The arguments of `command` for this function."""
    return cast(Spec, function.__dict__["kops"])


def common_parameters(spec: Spec) -> list[inspect.Parameter]:
    """The options of every command, as parameters of a function; `--format` only if the command has formats."""
    kind = inspect.Parameter.KEYWORD_ONLY
    parameters = []
    if spec.formats:
        help = f"How to print: {', '.join(spec.formats)}."
        parameters.append(
            inspect.Parameter(
                "format_", kind, default=spec.formats[0], annotation=Annotated[str, typer.Option("--format", metavar="FORMAT", help=help)]
            )
        )
    file = typer.Option("-o", "--output", metavar="FILE", help="Write to this file; it appears when it is complete.", show_default=False)
    quiet = typer.Option("-q", "--quiet", help="Print only warnings and errors, no progress bar.", show_default=False)
    verbose = typer.Option("-v", "--verbose", help="Print more messages.", count=True, show_default=False)
    no_color = typer.Option("--no-color", help="No colour (also: NO_COLOR in the environment).", show_default=False)
    return [
        *parameters,
        inspect.Parameter("output_", kind, default=None, annotation=Annotated[str | None, file]),
        inspect.Parameter("quiet_", kind, default=False, annotation=Annotated[bool, quiet]),
        inspect.Parameter("verbose_", kind, default=0, annotation=Annotated[int, verbose]),
        inspect.Parameter("no_color_", kind, default=False, annotation=Annotated[bool, no_color]),
    ]


_PATHS = ("PATH", "DIR", "FILE", "IMAGE", "CASE", "OTHER")
"""The metavars of paths."""
_WITH_PATHS = (*_PATHS, "D", "ID@HOST:PORT:DIR,")
"""The same, and those of values that may be or contain a path."""
COMMON_NAMES = ("format_", "output_", "quiet_", "verbose_", "no_color_")


class KopsCommand(TyperCommand):
    """Typer's command with kops's help: own options, common options, examples, exit codes."""

    entry: Entry
    spec: Spec

    def get_help_option(self, ctx: Any) -> Any:
        """`--help`, with kops's own coercion like every other parameter."""
        option = super().get_help_option(ctx)
        if option is not None:
            Plain.put_into(option)
        return option

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse like Typer, but never take an option as the value of the option before it: `--rollback --force J` lacks the journal."""
        if not ctx.resilient_parsing:
            self._refuse_options_as_values(ctx, args)
        rest: list[str] = super().parse_args(ctx, self._with_rest(ctx, args) if self.spec.takes_rest else args)
        if not ctx.resilient_parsing:
            self._refuse_empty_paths(ctx)
            if not exit_codes.sums(self.entry.path):
                self._refuse_bytes(ctx)
        return rest

    def _refuse_empty_paths(self, ctx: Any) -> None:
        """Raise Stop if a path is an empty word, as from a variable of the shell that is not set. No error about it could name it."""
        for each in self.params:
            value = ctx.params.get(each.name)
            if is_path(each) and (value == "" or (isinstance(value, list | tuple) and "" in value)):
                raise Stop(f"{named(each)}: the path is empty", self.entry.path)

    def _refuse_bytes(self, ctx: Any) -> None:
        """Raise Stop if a name or a value for a cluster is not UTF-8, as Kafka's texts are: it would be sent as another name."""
        for each in self.params:
            value = ctx.params.get(each.name)
            for text in value if isinstance(value, list | tuple) else (value,):
                if isinstance(text, str) and _metavar(each) not in _WITH_PATHS and any("\udc80" <= letter <= "\udcff" for letter in text):
                    raise Stop(f"{named(each)}: {text} is not UTF-8", self.entry.path)

    def _with_rest(self, ctx: Any, args: list[str]) -> list[str]:
        """The same words, with the option that takes the rest before each argument that follows it. Raises Stop unless there are as many
        arguments before it as the command has."""
        option = self.spec.takes_rest
        valued = self._valued(ctx)
        given: list[str] = []
        before: list[str] = []
        words = iter(args)
        known = {name for each in self.get_params(ctx) for name in (*each.opts, *each.secondary_opts)}
        is_rest = only_arguments = is_misspelt = False
        for word in words:
            if word == "--" and not only_arguments:
                only_arguments = True
                given += [] if is_rest else [word]
            elif only_arguments or not word.startswith("-") or word == "-":
                before += [] if is_rest else [word]
                given.append(f"{option}={word}" if is_rest else word)
            else:
                given.append(word)
                name = word if word.startswith("--") else _last_of_cluster(word, valued)
                if name in valued:
                    given += [value for value in (next(words, None),) if value is not None]
                is_rest = is_rest or word.partition("=")[0] == option
                is_misspelt = is_misspelt or (word.startswith("--") and word.partition("=")[0] not in known)
        names = [argument_name(each) for each in self.params if each.param_type_name == "argument"]
        if is_misspelt:
            return given  # then an argument may be its value, and the parser names it
        if len(before) > len(names):
            raise Stop(f"unexpected argument {before[len(names)]}: only the arguments after {option} may be several", self.entry.path)
        if is_rest and len(before) < len(names) and not any(word in ctx.help_option_names for word in args):
            missing = names[len(before)]
            raise Stop(f"missing argument {missing}: give it before {option}, which takes all arguments after it", self.entry.path)
        return given

    def _valued(self, ctx: Any) -> set[str]:
        """The names of the options that have a value."""
        options = [each for each in self.get_params(ctx) if isinstance(each, TyperOption)]
        return {name for each in options if not (each.is_flag or each.count) for name in each.opts}

    def _refuse_options_as_values(self, ctx: Any, args: list[str]) -> None:
        """Raise Stop if a value, in a word of its own, is a long option of this command. After `=` any value is accepted."""
        options = [each for each in self.get_params(ctx) if isinstance(each, TyperOption)]
        known = {name for each in options for name in (*each.opts, *each.secondary_opts)}
        valued = self._valued(ctx)
        words = iter(args)
        for word in words:
            if word == "--":
                return
            name = word if word.startswith("--") else _last_of_cluster(word, valued)
            if name not in valued:
                continue
            value = next(words, "")
            if value.startswith("--") and value.partition("=")[0] in known:
                meant = f"; if {value} is meant: {name}={value}" if name.startswith("--") else ""
                raise Stop(f"option '{name}' requires an argument, and {value} is an option{meant}", self.entry.path)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """`[OPTIONS] PATH...`; behind that, the option that takes the rest."""
        arguments = [argument_name(each) for each in self.params if each.param_type_name == "argument"]
        rest = next((each for each in self.params if self.spec.takes_rest in each.opts), None)
        return ["[OPTIONS]", *arguments, *([] if rest is None else [f"{self.spec.takes_rest} {rest.metavar}..."])]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Arguments, the command's options, the common options."""
        sections: dict[str, list[tuple[str, str]]] = {"Arguments": [], "Options": [], "Common options": []}
        for parameter in self.get_params(ctx):
            if parameter.param_type_name == "argument":
                sections["Arguments"].append((argument_name(parameter).strip("[]"), getattr(parameter, "help", None) or ""))
                continue
            record = parameter.get_help_record(ctx)
            if record is not None:
                common = parameter.name in COMMON_NAMES or parameter.name == "help"
                sections["Common options" if common else "Options"].append(record)
        for title, records in sections.items():
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Examples and exit codes."""
        with formatter.section("Examples"):
            for what, line in self.spec.examples:
                formatter.write(f"  {line}\n      {what}\n")
        a_sum = " (a sum)" if exit_codes.sums(self.entry.path) else ""
        with formatter.section(f"Exit codes{a_sum}"):
            formatter.write_dl([(str(code), meaning) for code, meaning in exit_codes.meanings(self.entry.path)])


def _last_of_cluster(word: str, valued: set[str]) -> str:
    """The option of `-qo` whose value is the next word: the last letter, unless an earlier option takes the rest as its value."""
    letters = word[1:] if word.startswith("-") else ""
    for number, letter in enumerate(letters, 1):
        if f"-{letter}" in valued:
            return f"-{letter}" if number == len(letters) else ""
    return ""


def is_path(parameter: Any) -> bool:
    """Whether the values of a parameter are paths."""
    return _metavar(parameter) in _PATHS


def _metavar(parameter: Any) -> str:
    return (parameter.metavar or "").strip("[].")


def named(parameter: Any) -> str:
    """The name of a parameter in messages."""
    is_argument = parameter.param_type_name == "argument"
    return f"argument '{argument_name(parameter)}'" if is_argument else f"option '{max(parameter.opts, key=len)}'"


def argument_name(parameter: Any) -> str:
    """The name of an argument in help: its metavar, in brackets if it is optional, with dots if it may be repeated."""
    name = str(parameter.metavar or parameter.name.upper()).strip("[]")
    if parameter.nargs == -1 and not name.endswith("..."):
        name += "..."
    return name if parameter.required else f"[{name}]"


def build(entry: Entry, boundary: Boundary | None = None) -> KopsCommand:
    """The Typer command for an entry of the tree. It returns the exit code."""
    function = load(entry)
    spec = spec_of(function)
    own = list(inspect.signature(function, eval_str=True).parameters.values())[1:]
    parameters = [p.replace(kind=inspect.Parameter.KEYWORD_ONLY) for p in own] + common_parameters(spec)

    def callback(**values: Any) -> int:
        common = {name: values.pop(name, None) for name in COMMON_NAMES}
        out = open_output(spec, common, values)
        if boundary is not None:
            boundary.out = out
        code = function(out, **values) or 0
        out.commit()
        return code | out.status if exit_codes.sums(entry.path) else code or out.status

    callback.__doc__ = function.__doc__
    callback.__dict__["__signature__"] = inspect.Signature(parameters)
    callback.__annotations__ = {p.name: p.annotation for p in parameters}
    app = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
    settings = {"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH}
    app.command(name=entry.path[-1], cls=KopsCommand, context_settings=settings)(callback)
    built = typer.main.get_command(app)
    assert isinstance(built, KopsCommand)
    built.entry = entry
    built.spec = spec
    for parameter in built.params:
        Plain.put_into(parameter)
    return built


class Plain:
    """Converts the text of a value to str, int, float or bool, or a list of them.

    Typer uses pydantic for that, whose import takes 100 ms of CPU. A parameter has its coercion in `_runtime_param`, where this class
    replaces it. Parameters of other types keep Typer's. (A test checks that running a command does not import pydantic.)
    """

    def __init__(self, kind: type, minimum: float | None, maximum: float | None) -> None:
        self._kind = kind
        self._minimum = minimum
        self._maximum = maximum

    @classmethod
    def put_into(cls, parameter: Any) -> None:
        """Use this coercion for a Typer parameter, if its type is one of these."""
        annotation = parameter.type_descriptor.annotation
        if get_origin(annotation) is list:
            [annotation] = get_args(annotation)
        if annotation in (str, int, float, bool):
            parameter._runtime_param = cls(annotation, parameter.min, parameter.max)

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Convert a value (a text, a list, None, or a default of the right type) for the command. Raises typer.BadParameter for an invalid
        one."""
        if param.multiple or param.nargs == -1:
            return tuple(self._one(element, param, ctx) for element in value or ())
        return None if value is None else self._one(value, param, ctx)

    def _one(self, value: Any, param: Any, ctx: Any) -> Any:
        if self._kind in (str, bool):
            return value
        try:
            number = self._kind(value)
        except ValueError:
            wanted = "a whole number" if self._kind is int else "a number"
            raise typer.BadParameter(f"{value!r} is not {wanted}", ctx=ctx, param=param) from None
        low, high = self._minimum, self._maximum
        if (low is not None and number < low) or (high is not None and number > high):
            allowed = (
                f"from {low} to {high}"
                if high is not None and low is not None
                else f"at least {low}"
                if high is None
                else f"at most {high}"
            )
            raise typer.BadParameter(f"{number} is out of range, allowed is {allowed}", ctx=ctx, param=param)
        return number


def run(entry: Entry, arguments: list[str], boundary: Boundary) -> int:
    """Parse the arguments of a command and run it. Returns the exit code. Errors propagate to the boundary."""
    built = build(entry, boundary)
    try:
        context = built.make_context(entry.name, arguments)
    except typer.Exit as leave:  # --help
        return leave.exit_code
    except BrokenPipeError:
        raise OutputClosed from None
    with context, interruptible():
        return cast(int, built.invoke(context))


class Terminated(KeyboardInterrupt):
    """SIGTERM or SIGHUP was received. It is handled like Ctrl-C: complete partial results are kept, incomplete files are removed."""


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, unless they have another handler already (nohup, the caller's)."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def end(number: int, _frame: object) -> None:
        if os.getpid() != owner:  # a forked worker has nothing to complete
            os._exit(128 + number)
        signal.signal(number, signal.SIG_DFL)  # a second signal ends the process at once
        raise Terminated(signal.Signals(number).name)

    ours = [number for number in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is end:
                signal.signal(number, signal.SIG_DFL)


def open_output(spec: Spec, common: dict[str, Any], values: dict[str, Any]) -> Output:
    """The `Output` for the common options."""
    format = common["format_"] or "table"
    if spec.formats and format not in spec.formats:
        raise UsageError(f"--format {format} is not one of {', '.join(spec.formats)}")
    if common["quiet_"] and common["verbose_"]:
        raise UsageError("-q and -v exclude each other")
    if common["output_"]:
        _refuse_input_as_output(common["output_"], values)
    verbosity = -1 if common["quiet_"] else int(common["verbose_"] or 0)
    return Output(format=format, file=common["output_"], verbosity=verbosity, color=not common["no_color_"])


def _refuse_input_as_output(target: str, values: dict[str, Any]) -> None:
    """Raise UsageError if `-o` would replace the command's input: one of its arguments, or a file named like one of Kafka's."""
    if not os.path.isfile(target):
        return
    name = os.path.basename(target)
    if name.endswith(KAFKA_ENDINGS) or name in KAFKA_NAMES:
        raise UsageError(f"-o {target} would replace a file that has the name of a Kafka file; choose another name")
    for value in values.values():
        for element in value if isinstance(value, list) else [value]:
            if isinstance(element, (str, os.PathLike)) and os.path.exists(element) and os.path.samefile(element, target):
                raise UsageError(f"-o {target} would replace the input")


def words(example: str) -> list[str]:
    """The arguments of an example's command line, after `kops` and without the shell's part (`| head`, `> file`, `&& …`)."""
    lexer = shlex.shlex(example, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    taken: list[str] = []
    for word in lexer:
        if word and set(word) <= set("|&;<>()"):
            break
        taken.append(word)
    return taken[1:]


__all__ = ["FORMATS", "KopsCommand", "Spec", "build", "command", "load", "run", "spec_of", "words"]
