"""Ends every command with an exit code, and at most one line of text for an error."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from kops.cli.printing.output import Output


class Boundary:
    """Catches every exception: after `with boundary:`, `boundary.code` is the exit code, and one line was printed for an error.

    `path` is the command so far, which decides the scheme of exit codes. `out` is the running command's output, if there is one; it knows
    the exit code so far and which output to close or discard.
    """

    def __init__(self, path: tuple[str, ...]) -> None:
        self.path = path
        self.out: Output | None = None
        self.code = 0

    def __enter__(self) -> Boundary:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        if error is None or isinstance(error, (SystemExit, GeneratorExit)):
            return False
        from kops.cli.running.failures import handle

        self.code = handle(error, self.path, self.out)
        return True
