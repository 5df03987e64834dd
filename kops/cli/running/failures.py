"""The message and the exit code for each exception that reaches the top.

Typer has one exit code for all errors, so it never sees them: `kops.cli.running.boundary.Boundary` calls `handle` for every exception.
"""

from __future__ import annotations

import errno
import os
import sys

from kops.cli.printing.sink import OutputClosed, OutputError, discard_stdout
from kops.cli.printing.text import say
from kops.cli.running import exit_codes
from kops.cli.running.command_line import Stop
from kops.errors import KopsError, UnreachableError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.cli.printing.output import Output

DEBUG = "KOPS_DEBUG"


def handle(error: BaseException, path: tuple[str, ...], out: Output | None) -> int:
    """Print the message for an exception and return the exit code."""
    so_far = out.status if out is not None else 0
    if isinstance(error, OutputClosed):
        discard_stdout()
        _finish(out, keep=True)
        return so_far
    if isinstance(error, KeyboardInterrupt):
        return _interrupted(path, out, so_far, str(error))
    _finish(out, keep=False)
    if os.environ.get(DEBUG):
        import traceback

        for line in "".join(traceback.format_exception(error)).splitlines():
            say(line)
    message, code = _describe(error, path)
    if out is not None and out.resume:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            message += f". When there is room: {out.resume}"
        elif isinstance(error, UnreachableError):
            message += f". To resume: {out.resume}"
    say(f"kops: error: {message}")
    return (so_far | code) if exit_codes.sums(path) else code


def _finish(out: Output | None, *, keep: bool) -> OutputError | None:
    """Close the command's output, undisturbed by a second Ctrl-C. Returns the error, if any."""
    if out is None:
        return None
    import signal
    import threading

    in_main = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main else None
    try:
        if keep:
            out.keep()
        else:
            out.abandon()
    except OutputClosed:
        discard_stdout()
    except OutputError as failure:
        return failure
    finally:
        if before is not None:
            signal.signal(signal.SIGINT, before)
    return None


def _interrupted(path: tuple[str, ...], out: Output | None, so_far: int, by: str) -> int:
    """Handle Ctrl-C, or the signal named `by`: keep the output so far."""
    code = exit_codes.interrupted(path)
    failure = _finish(out, keep=True)
    words = f"interrupted by {by}" if by else "interrupted"
    if failure is not None:
        words += f"; {failure}"
        code |= exit_codes.failed(path)
    elif out is not None and out.wrote:
        words += f"; what was printed{f' into {out.file}' if out.file else ''} so far is intact"
    if out is not None and out.resume:
        words += f". To resume: {out.resume}"
    say(f"kops: {words}")
    return (so_far | code) if exit_codes.sums(path) else code


def _describe(error: BaseException, path: tuple[str, ...]) -> tuple[str, int]:
    """The line to print and the exit code."""
    if isinstance(error, Stop):
        return f"{error} (see {' '.join(('kops', *_known(error.path)))} --help)", exit_codes.usage(error.path)
    if isinstance(error, KopsError):
        return str(error), exit_codes.of_error(error, path)
    if isinstance(error, MemoryError):
        return "out of memory", exit_codes.failed(path)
    if isinstance(error, OSError):
        where = f": {os.fsdecode(error.filename)}" if isinstance(error.filename, (str, bytes)) else ""
        return f"{error.strerror or error}{where}", exit_codes.of_os_error(error, path)
    usage = _usage_message(error, path)
    if usage is not None:
        return usage, exit_codes.usage(path)
    return f"internal error, {type(error).__name__}: {error} ({DEBUG}=1 shows where)", exit_codes.failed(path)


def _known(path: tuple[str, ...]) -> tuple[str, ...]:
    """The longest prefix of the path that is a command or a group."""
    from kops.cli.running import tree

    while path and tree.find(path) is None and not tree.is_group(path):
        path = path[:-1]
    return path


def _near(typed: str, possibilities: list[str]) -> list[str]:
    """The likely candidates: `--verbos` is near `--verbose`, `--bogus` is not."""
    from difflib import get_close_matches

    return get_close_matches(typed, possibilities, n=1, cutoff=0.75)


def _usage_message(error: BaseException, path: tuple[str, ...]) -> str | None:
    """The message for an error of Typer's own parser (typer has its own copy of click's exceptions); None for other errors."""
    if "typer" not in sys.modules:
        return None
    import typer

    if not isinstance(error, typer.TyperException):
        return None
    message = error.message if getattr(error, "possibilities", None) is not None else error.format_message()
    near = _near(getattr(error, "option_name", ""), getattr(error, "possibilities", None) or [])
    message = " ".join(message.split()).rstrip(".")
    message = message[:1].lower() + message[1:]
    if near:
        message += f", did you mean {near[0]}?"
    return f"{message} (see {' '.join(('kops', *path))} --help)"
