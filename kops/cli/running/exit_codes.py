"""Exit codes: the meaning of each number, and the number for each exception. No other module decides that.

`kops log`, `kops evidence` and `kops scan` return a sum, as `fsck` does, so that one number can report several facts. All other commands
return one of a few small numbers. The manual page kops-exit-codes is made from these tables.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from kops.errors import KopsError

CLEAN = 0
FIXED = 1
RESTART = 2
PROBLEMS = 4
FAILED = 8
USAGE = 16
INTERRUPTED = 32
LOST = 64

SUM_GROUPS = ("log", "evidence", "scan")

SUM_MEANINGS = (
    (CLEAN, "clean"),
    (FIXED, "problems were fixed, or everything was recovered"),
    (RESTART, "re-replication or a restart of the broker is advised"),
    (PROBLEMS, "problems were found, or remain"),
    (FAILED, "could not be done: input or output error, no permission, lock held by a broker, something is not installed"),
    (USAGE, "wrong usage"),
    (INTERRUPTED, "interrupted; what was printed or written so far is intact"),
    (LOST, "records are lost in the output"),
)

NOT_FOUND = 1
"""Of a search only, as grep returns it: it fixes nothing."""
SEARCHES = (("log", "grep"), ("scan", "grep"))

PLAIN_FAILED = 1
PLAIN_USAGE = 2
PLAIN_NOT_FOUND = 3
PLAIN_UNREACHABLE = 4
PLAIN_INTERRUPTED = 130

PLAIN_MEANINGS = (
    (0, "done"),
    (PLAIN_FAILED, "the server or an item failed"),
    (PLAIN_USAGE, "wrong usage"),
    (PLAIN_NOT_FOUND, "not found"),
    (PLAIN_UNREACHABLE, "unreachable or timed out"),
    (PLAIN_INTERRUPTED, "interrupted"),
)

# Error codes of servers that mean "not found", too.
NOT_FOUND_ERRORS = (
    "UNKNOWN_TOPIC_OR_PARTITION",
    "UNKNOWN_TOPIC_ID",
    "LOG_DIR_NOT_FOUND",
    "GROUP_ID_NOT_FOUND",
    "BROKER_ID_NOT_REGISTERED",
    "TRANSACTIONAL_ID_NOT_FOUND",
)
UNREACHABLE_ERRORS = ("REQUEST_TIMED_OUT", "NETWORK_EXCEPTION", "BROKER_NOT_AVAILABLE")


def sums(path: tuple[str, ...]) -> bool:
    """Whether the command at this path (`("log", "dump")`) returns a sum."""
    return bool(path) and path[0] in SUM_GROUPS


def usage(path: tuple[str, ...]) -> int:
    """The exit code of wrong usage of the command at this path."""
    return USAGE if sums(path) else PLAIN_USAGE


def failed(path: tuple[str, ...]) -> int:
    """The exit code of something that could not be done."""
    return FAILED if sums(path) else PLAIN_FAILED


def interrupted(path: tuple[str, ...]) -> int:
    """The exit code after Ctrl-C."""
    return INTERRUPTED if sums(path) else PLAIN_INTERRUPTED


def meanings(path: tuple[str, ...]) -> tuple[tuple[int, str], ...]:
    """`(code, meaning)` of the commands at this path."""
    if path in SEARCHES:
        return ((CLEAN, "found"), (NOT_FOUND, "nothing was found"), *SUM_MEANINGS[3:-1])
    return SUM_MEANINGS if sums(path) else PLAIN_MEANINGS


def of_os_error(error: OSError, path: tuple[str, ...]) -> int:
    """The exit code of an error of the operating system."""
    return PLAIN_NOT_FOUND if isinstance(error, FileNotFoundError) and not sums(path) else failed(path)


def of_error(error: KopsError, path: tuple[str, ...]) -> int:
    """The exit code of an error of the tree in `kops.errors`."""
    from kops.errors import ApiError, NotFoundError, UnreachableError

    if sums(path):
        return error.exit_code
    if error.exit_code == USAGE:
        return PLAIN_USAGE
    name = getattr(error, "name", "") if isinstance(error, ApiError) else ""
    if isinstance(error, UnreachableError) or name in UNREACHABLE_ERRORS:
        return PLAIN_UNREACHABLE
    return PLAIN_NOT_FOUND if isinstance(error, NotFoundError) or name in NOT_FOUND_ERRORS else PLAIN_FAILED
