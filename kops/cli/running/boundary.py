"""Where a command ends, however it ends: with an exit code and at most one line of words."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType

    from kops.cli.printing.output import Output


class Boundary:
    """Where every exception ends: `with boundary:` leaves `boundary.code` as the exit code and has printed one line for an error.

    `path` is the command so far (it decides the scheme of exit codes), `out` the running command's output once there is one: it knows the
    exit code so far and what has to be closed or thrown away.
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
