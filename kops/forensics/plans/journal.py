"""Applies a plan so that it can be interrupted at any point, continued, and undone.

A journal is a directory `<log dir>.kops-journal/<time>/` next to the log directory. It is never inside, because a broker would take it for
a partition there. It contains

* `journal.jsonl` - the first line is the whole plan (`begin`). A line follows before and after each step, and `done` at the end. A
  rollback adds `rolling-back` and `rolled-back`. Every line is flushed to the disk before the step that it announces begins;
* `content/N` - new bytes of step N that are in no file;
* `backup/N` - the file that step N replaces or removes: a hard link (so time and inode stay), or a copy where links are not possible.

A step reads only originals: the backup of a path if there is one, else the path itself. So each step can be repeated from its beginning
after any interruption, and makes the same file.
"""

from __future__ import annotations

import errno
import json
import os
import posixpath
import time
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from kops.errors import DecodeError, KopsError, NotFoundError
from kops.files import LOCK_FILE, Files
from kops.forensics.plans.plan import Copy, Data, Move, Part, Plan, Put, Remove, Step
from kops.storage.formats.names import parse_log_file

__all__ = ["ChangedSinceError", "Journal", "apply_plan", "journal_root", "locked", "open_journal", "rollback", "unfinished_journals"]

SCHEMA: Final = "kops.repair-journal/v1"
JOURNAL_FILE: Final = "journal.jsonl"
STATES: Final = ("begin", "done", "rolling-back", "rolled-back")
STEP_STATES: Final = ("start", "applied")
STAGED: Final = ".kops-new"
_CHUNK: Final = 1 << 20
_NO_LINKS: Final = (errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS)

_T = TypeVar("_T")


class ChangedSinceError(KopsError):
    """A rollback would lose data that was written after the repair, or change files elsewhere."""


@dataclass(slots=True)
class Journal:
    """One journal: its path, its log directory, its steps, and its progress.

    `states` maps the number of a step to `start` or `applied`, `checks` to the CRC-32 of the file it made; `state` is that of the whole:
    `begin`, `done`, `rolling-back`, `rolled-back`. `existed` says whether there was a file at the step's path before. `links` says where
    those directories of the steps lead that a symbolic link puts elsewhere.
    """

    path: str
    log_dir: str
    steps: list[Step]
    existed: list[bool]
    state: str = "begin"
    states: dict[int, str] = field(default_factory=dict)
    checks: dict[int, int] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    @property
    def unfinished(self) -> bool:
        """Whether it is incomplete, after an interruption."""
        return self.state in ("begin", "rolling-back")

    def backup(self, number: int) -> str:
        """The path of the backup of step `number`."""
        return posixpath.join(self.path, "backup", f"{number:06}")


def journal_root(log_dir: str, chosen: str | None = None) -> str:
    """The directory of a log directory's journals: next to it, or a folder of its name in the chosen directory."""
    log_dir = log_dir.rstrip("/") or "/"
    if chosen is None:
        return log_dir + ".kops-journal"
    return posixpath.join(chosen, posixpath.basename(log_dir) + ".kops-journal")


@contextmanager
def locked(files: Files, log_dir: str) -> Iterator[None]:
    """Hold the lock that a broker takes. A lock file that was not there before is removed at the end. Raises LockHeldError."""
    name = posixpath.join(log_dir, LOCK_FILE)
    existed = files.exists(name)
    lock = files.lock(log_dir)
    try:
        if not existed:
            files.copy_owner(log_dir, name)
        yield
    finally:
        try:
            # Removed while the lock is still held: a broker that opened the old file cannot lock it, and a new one is a new file.
            if not existed and files.exists(name):
                files.unlink(name)
        finally:
            lock.release()


def apply_plan(
    files: Files,
    plan: Plan,
    *,
    journal: str | None = None,
    now_ms: Callable[[], int] | None = None,
    on_step: Callable[[int, int, Step], None] | None = None,
) -> Journal | None:
    """Apply a plan. Returns the journal, or None if there was nothing to do.

    The caller holds the lock (`locked`). `journal`: the directory for journals (default: next to the log directory). `on_step` gets the
    number of the step, the number of all steps, and the step, before it begins. Raises OSError, or KopsError where the journal cannot be
    made.
    """
    if plan.empty:
        return None
    root = journal_root(files.absolute(plan.log_dir), files.absolute(journal) if journal else None)
    made = _create(files, root, plan, (now_ms or _clock)())
    _carry_on(files, made, on_step)
    return made


def resume(files: Files, journal: Journal, on_step: Callable[[int, int, Step], None] | None = None) -> None:
    """Finish an interrupted repair or rollback. The caller holds the lock. Raises ChangedSinceError for a new link, as `rollback` does, and
    DecodeError if a step would read a file that no repair reads."""
    _refuse_new_links(journal)
    if journal.state == "rolling-back":
        _undo(files, journal)
    elif journal.state == "begin":
        _refuse_other_sources(journal)
        _carry_on(files, journal, on_step)


def rollback(files: Files, journal: Journal, *, force: bool = False) -> int:
    """Restore everything as it was before the repair: bytes, names and times. Returns the number of steps undone.

    Unless `force` is set, raises ChangedSinceError before it changes anything if a file is not as the repair left it (a broker ran). Raises
    it in any case if a symbolic link now puts a directory elsewhere.
    """
    if journal.state == "rolled-back":
        return 0
    _refuse_new_links(journal)
    if journal.state != "rolling-back":
        if not force:
            _check_backups(files, journal)
            _check_unchanged(files, journal)
        _append(files, journal, {"state": "rolling-back"})
        journal.state = "rolling-back"
    return _undo(files, journal)


def _linked(journal: Journal) -> dict[str, str]:
    """Return the directories of the steps that a symbolic link below the log directory puts elsewhere, and where."""
    root = os.path.realpath(journal.log_dir)
    places = [place for step in journal.steps for place in ((step.path, step.target) if isinstance(step, Move) else (step.path,))]
    found = {}
    for directory in sorted(set(map(posixpath.dirname, places))):
        real = os.path.realpath(directory)
        if real != posixpath.normpath(posixpath.join(root, posixpath.relpath(directory, journal.log_dir))):
            found[directory] = real
    return found


def _refuse_new_links(journal: Journal) -> None:
    for directory, real in _linked(journal).items():
        if journal.links.get(directory) != real:
            raise ChangedSinceError(
                f"{directory}: leads to {real} now, so the repair did not change the files there. Remove the link first"
            )


def _refuse_other_sources(journal: Journal) -> None:
    """Refuse a journal that would copy any file into a log. A repair reads its own log directory, and heal the logs of the same partition
    in other ones, with the checksum of what it takes."""
    inside = posixpath.join(journal.log_dir, "")
    for number, step in enumerate(journal.steps):
        for part in step.parts if isinstance(step, Put) else ():
            if not isinstance(part, Copy) or (posixpath.normpath(part.path) == part.path and part.path.startswith(inside)):
                continue
            partition = posixpath.basename(posixpath.dirname(step.path))
            name = parse_log_file(posixpath.basename(os.path.realpath(part.path)))
            is_log = name is not None and name.kind == "log"
            if not is_log or part.crc is None or posixpath.basename(posixpath.dirname(part.path)) != partition:
                reason = f"step {number} reads {part.path}, which is neither in {journal.log_dir} nor a log of {partition}"
                raise _malformed(journal.path, 1, reason)


def _listed(files: Files, path: str) -> list[str]:
    """The names in a directory; none if it is no directory."""
    try:
        return files.list(path)
    except OSError:
        return []


def open_journal(files: Files, path: str) -> Journal:
    """Read a journal from its directory (or its journal.jsonl). Raises NotFoundError, and DecodeError for an invalid line."""
    if posixpath.basename(path) == JOURNAL_FILE:
        path = posixpath.dirname(path) or "."
    path = files.absolute(path)
    name = posixpath.join(path, JOURNAL_FILE)
    if not files.exists(name):
        inside = [each for each in _listed(files, path) if files.exists(posixpath.join(path, each, JOURNAL_FILE))]
        hint = f"; the journals in it are {', '.join(inside)}" if inside else f" ({JOURNAL_FILE} is missing)"
        raise NotFoundError(f"{path}: not the journal of a repair{hint}")
    lines = files.read_all(name).split(b"\n")
    journal: Journal | None = None
    for number, line in enumerate(lines, 1):
        if not line:
            continue
        try:
            document = json.loads(line)
        except (ValueError, RecursionError) as error:
            if number == len(lines) and journal is not None:
                break  # The last line may be torn; the step that it announces has not begun. The first line was written whole.
            raise _malformed(path, number, "not JSON") from error
        try:
            if journal is None:
                journal = _read_begin(files, path, document)
            else:
                _read_progress(journal, document)
        except KeyError as error:
            raise _malformed(path, number, f"{error} is missing") from error
        except (TypeError, ValueError) as error:
            raise _malformed(path, number, str(error)) from error
    if journal is None:
        raise _malformed(path, 1, "the plan is missing")
    return journal


def _malformed(path: str, number: int, reason: str) -> DecodeError:
    words = (
        f"line {number}: {reason}. The journal of this repair was changed or damaged. Restore {JOURNAL_FILE}, or, to give up"
        f" finishing or undoing that repair, move {path} away (its backup/ keeps the files from before the repair)"
    )
    return DecodeError(words, code="journal-malformed", file=posixpath.join(path, JOURNAL_FILE))


def unfinished_journals(files: Files, log_dir: str, chosen: str | None = None) -> list[Journal]:
    """The journals of a log directory that an interruption left, oldest first."""
    root = journal_root(files.absolute(log_dir), files.absolute(chosen) if chosen else None)
    if not files.exists(root):
        return []
    found = []
    for name in files.list(root):
        path = posixpath.join(root, name)
        if files.exists(posixpath.join(path, JOURNAL_FILE)):
            journal = open_journal(files, path)
            if journal.unfinished and journal.log_dir == files.absolute(log_dir):
                found.append(journal)
    return found


def _clock() -> int:
    return time.time_ns() // 1_000_000


# Making a journal.


def _create(files: Files, root: str, plan: Plan, now_ms: int) -> Journal:
    """Write the whole plan. The repair exists from the moment in which journal.jsonl gets its name."""
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(now_ms // 1000)) + f".{now_ms % 1000:03}Z"
    try:
        for directory in _missing_parents(files, root):
            files.mkdir(directory)
        _remove_unborn(files, root)
        path = posixpath.join(root, stamp)
        number = 1
        while files.exists(path):
            number += 1
            path = posixpath.join(root, f"{stamp}-{number}")
        for directory in (path, posixpath.join(path, "content"), posixpath.join(path, "backup")):
            files.mkdir(directory)
    except (PermissionError, FileNotFoundError, NotADirectoryError) as error:
        raise KopsError(f"{root}: no journal can be made there ({error.strerror}); choose another directory with --journal") from error
    steps = [_absolute(files, step) for step in plan.steps]
    existed = [files.exists(step.path) for step in steps]
    journal = Journal(path, files.absolute(plan.log_dir), steps, existed)
    journal.links = _linked(journal)
    begin: dict[str, Any] = {"schema": SCHEMA, "state": "begin", "log_dir": journal.log_dir, "time_ms": now_ms, "steps": []}
    if journal.links:
        begin["links"] = journal.links
    for i, step in enumerate(steps):
        begin["steps"].append(_write_step(files, path, i, step, existed[i]))
    begin["findings"] = [found.to_json() for found in plan.findings]
    files.sync_dir(posixpath.join(path, "content"))
    files.sync_dir(path)
    files.sync_dir(root)
    files.write_atomic(posixpath.join(path, JOURNAL_FILE), json.dumps(begin, separators=(",", ":")).encode() + b"\n")
    return journal


def _remove_unborn(files: Files, root: str) -> None:
    """Remove the remains of journals whose creation was interrupted."""
    for name in files.list(root):
        path = posixpath.join(root, name)
        if not files.stat(path).is_dir or files.exists(posixpath.join(path, JOURNAL_FILE)):
            continue
        for left in list(files.walk(path)):
            files.unlink(left)
        for directory in ("content", "backup", ""):
            if files.exists(posixpath.join(path, directory)):
                files.rmdir(posixpath.join(path, directory).rstrip("/"))


def _missing_parents(files: Files, path: str) -> list[str]:
    missing: list[str] = []
    while path not in ("", "/") and not files.exists(path):
        missing.insert(0, path)
        path = posixpath.dirname(path)
    return missing


def _absolute(files: Files, step: Step) -> Step:
    path = files.absolute(step.path)
    if isinstance(step, Put):
        parts: list[Part] = []
        for part in step.parts:
            parts.append(replace(part, path=files.absolute(part.path)) if isinstance(part, Copy) else part)
        return Put(path, step.action, step.why, step.lossless, tuple(parts), step.mtime_ms)
    if isinstance(step, Move):
        return Move(path, step.action, step.why, step.lossless, files.absolute(step.target))
    return Remove(path, step.action, step.why, step.lossless)


def _write_step(files: Files, path: str, number: int, step: Step, existed: bool) -> dict[str, Any]:
    """The step as JSON; its own bytes go to `content/<number>`."""
    document: dict[str, Any] = {
        "path": step.path,
        "action": step.action,
        "why": step.why,
        "lossless": step.lossless,
        "existed": existed,
    }
    if isinstance(step, Remove):
        return document | {"kind": "remove"}
    if isinstance(step, Move):
        return document | {"kind": "move", "target": step.target}
    own = bytearray()
    parts: list[list[Any]] = []
    for part in step.parts:
        if isinstance(part, Data):
            parts.append(["own", len(own), part.length])
            own += part.data
        else:
            parts.append([part.path, part.position, part.length, *(() if part.crc is None else (part.crc,))])
    if own:
        with files.open(posixpath.join(path, "content", f"{number:06}"), "new") as file:
            file.write(0, own)
            file.sync()
    return document | {"kind": "put", "parts": parts, "mtime_ms": step.mtime_ms}


# Reading a journal. Manual changes in it raise KeyError, TypeError or ValueError.


def _read_begin(files: Files, path: str, document: Any) -> Journal:
    schema = _field(document, "schema", str)
    if schema != SCHEMA:
        raise ValueError(f"the schema is {schema!r}, not {SCHEMA!r}")
    listed = _field(document, "steps", list)
    steps = [_read_step(files, path, number, step) for number, step in enumerate(listed)]
    log_dir = _field(document, "log_dir", str)
    _refuse_outside(path, log_dir, steps)
    links = _field(document, "links", dict) if "links" in document else {}
    return Journal(path, log_dir, steps, [_field(step, "existed", bool) for step in listed], links=links)


def _refuse_outside(path: str, log_dir: str, steps: Iterable[Step]) -> None:
    """A journal changes files of its log directory only, and lies in a directory that is named after it."""
    root = posixpath.basename(posixpath.dirname(path))
    if root != posixpath.basename(journal_root(log_dir)):
        raise ValueError(f"it is about {log_dir}, but lies in a directory named {root}")
    for number, step in enumerate(steps):
        for place in (step.path, step.target) if isinstance(step, Move) else (step.path,):
            if posixpath.normpath(place) != place or not place.startswith(log_dir.rstrip("/") + "/"):
                raise ValueError(f"step {number} is about {place}, which is outside of {log_dir}")


def _read_progress(journal: Journal, document: Any) -> None:
    state = _field(document, "state", str)
    if "step" not in document:
        if state not in STATES:
            raise ValueError(f"the state is {state!r}, not one of {', '.join(STATES)}")
        journal.state = state
        return
    step = _field(document, "step", int)
    if not 0 <= step < len(journal.steps):
        raise ValueError(f"there is no step {step}")
    if state not in STEP_STATES:
        raise ValueError(f"the state of step {step} is {state!r}, not one of {', '.join(STEP_STATES)}")
    journal.states[step] = state
    if "crc32" in document:
        journal.checks[step] = _field(document, "crc32", int)


def _field(document: Any, name: str, kind: type[_T]) -> _T:
    if not isinstance(document, dict):
        raise TypeError("no JSON object")
    value = document[name]
    if not isinstance(value, kind):
        raise TypeError(f"{name!r} is {json.dumps(value)[:60]}")
    return value


def _read_step(files: Files, path: str, number: int, document: Any) -> Step:
    place, action, why = (_field(document, name, str) for name in ("path", "action", "why"))
    head = (place, action, why, _field(document, "lossless", bool))
    kind = _field(document, "kind", str)
    if kind == "remove":
        return Remove(*head)
    if kind == "move":
        return Move(*head, target=_field(document, "target", str))
    if kind != "put":
        raise ValueError(f"there is no kind {kind!r} of steps")
    mtime_ms = None if document["mtime_ms"] is None else _field(document, "mtime_ms", int)
    own = posixpath.join(path, "content", f"{number:06}")
    listed = [_read_part(part) for part in _field(document, "parts", list)]
    needed = any(name == "own" and length for name, _, length, _ in listed)
    if needed and not files.exists(own):
        raise ValueError(f"step {number} needs {own}, which is missing")
    content = files.read_all(own) if needed else b""
    parts: list[Part] = []
    for name, position, length, crc in listed:
        if position < 0 or length < 0:
            raise ValueError(f"step {number} takes {length} bytes from {position} on")
        if name == "own" and position + length > len(content):
            raise ValueError(f"step {number} needs {position + length} bytes of {own}, which has {len(content)}")
        parts.append(Data(content[position : position + length]) if name == "own" else Copy(name, position, length, crc))
    return Put(*head, parts=tuple(parts), mtime_ms=mtime_ms)


def _read_part(part: Any) -> tuple[str, int, int, int | None]:
    """-> (path, or `own`; position; length; checksum)."""
    name, position, length, *crc = part
    return str(name), int(position), int(length), int(crc[0]) if crc else None


def _append(files: Files, journal: Journal, document: dict[str, Any]) -> None:
    """Add a line and force it to the disk; a torn line before it is overwritten."""
    with files.open(posixpath.join(journal.path, JOURNAL_FILE), "rw") as file:
        end = file.size()
        if file.read(end - 1, 1) != b"\n":
            end = file.read(0, end).rfind(b"\n") + 1
            file.truncate(end)
        file.write(end, json.dumps(document, separators=(",", ":")).encode() + b"\n")
        file.sync()


# Applying.


def _carry_on(files: Files, journal: Journal, on_step: Callable[[int, int, Step], None] | None) -> None:
    for number, step in enumerate(journal.steps):
        if journal.states.get(number) == "applied":
            continue
        if on_step is not None:
            on_step(number + 1, len(journal.steps), step)
        _append(files, journal, {"step": number, "state": "start"})
        journal.states[number] = "start"
        check = _do(files, journal, number)
        applied: dict[str, Any] = {"step": number, "state": "applied"}
        if check is not None:
            journal.checks[number] = applied["crc32"] = check
        _append(files, journal, applied)
        journal.states[number] = "applied"
    _append(files, journal, {"state": "done"})
    journal.state = "done"


def _do(files: Files, journal: Journal, number: int) -> int | None:
    """Do one step, from its beginning. Returns the CRC-32 of the file it made, if it made one."""
    step = journal.steps[number]
    directory = posixpath.dirname(step.path)
    if isinstance(step, Move):
        if files.exists(step.path):
            if files.exists(step.target):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), step.target)
            files.rename(step.path, step.target)
            files.sync_dir(directory)
        return None
    if _is_dir(files, step.path):
        # Removed whole, even if a file is expected here.
        files.rename(step.path, journal.backup(number))
        files.sync_dir(directory)
    elif journal.existed[number]:
        _back_up(files, journal, number)
    if isinstance(step, Remove):
        if files.exists(step.path):
            files.unlink(step.path)
            files.sync_dir(directory)
        return None
    staged = step.path + STAGED
    check = _stage(files, journal, step, staged)
    was_file = journal.existed[number] and not _is_dir(files, journal.backup(number))
    like = journal.backup(number) if was_file else _sibling(files, directory, staged)
    if like is not None:
        files.copy_owner(like, staged)
    if step.mtime_ms is not None:
        files.set_mtime(staged, step.mtime_ms)
    files.rename(staged, step.path)
    files.sync_dir(directory)
    return check


def _is_dir(files: Files, path: str) -> bool:
    return files.exists(path) and files.stat(path).is_dir


def _sibling(files: Files, directory: str, staged: str) -> str | None:
    """Some writable file of the folder, whose owner and permission bits a new file takes."""
    for name in files.list(directory):
        path = posixpath.join(directory, name)
        status = files.stat(path)
        if path != staged and not status.is_dir and status.mode & 0o200:
            return path
    return None


def _back_up(files: Files, journal: Journal, number: int) -> None:
    backup = journal.backup(number)
    if files.exists(backup) or not files.exists(journal.steps[number].path):
        return
    _duplicate(files, journal.steps[number].path, backup)
    files.sync_dir(posixpath.dirname(backup))


def _duplicate(files: Files, source: str, target: str) -> None:
    """A second name for a file, or a whole copy of it with its time; it appears at once or not at all."""
    try:
        files.link(source, target)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    partial = target + ".part"
    status = files.stat(source)
    with files.open(source) as old, files.open(partial, "create") as new:
        new.truncate(0)
        for position in range(0, status.size, _CHUNK):
            new.write(position, old.read(position, min(_CHUNK, status.size - position)))
        new.sync()
    files.copy_owner(source, partial)
    files.set_mtime(partial, status.mtime_ms)
    files.rename(partial, target)


def _stage(files: Files, journal: Journal, step: Put, staged: str) -> int:
    """Write the new file next to the old one; returns its CRC-32."""
    check = 0
    position = 0
    if files.exists(staged):
        files.unlink(staged)  # Never written to: it may be a second name of an original.
    with files.open(staged, "new") as new:
        for part in step.parts:
            for chunk in _chunks(files, journal, part):
                new.write(position, chunk)
                check = zlib.crc32(chunk, check)
                position += len(chunk)
        new.sync()
    return check


def _chunks(files: Files, journal: Journal, part: Part) -> Iterator[bytes]:
    if isinstance(part, Data):
        yield part.data
        return
    with files.open(_original(files, journal, part.path)) as source:
        position, end = part.position, part.position + part.length
        check = 0
        while position < end:
            chunk = source.read(position, min(_CHUNK, end - position))
            if not chunk:
                raise KopsError(f"{part.path}: the file became shorter while it was repaired")
            check = zlib.crc32(chunk, check)
            yield chunk
            position += len(chunk)
    if part.crc is not None and check != part.crc:
        raise KopsError(f"{part.path}: the file changed since the plan was made; --rollback {journal.path} undoes what was done")


def _original(files: Files, journal: Journal, path: str) -> str:
    """Return the current location of the bytes that a path had before the repair."""
    for number, step in enumerate(journal.steps):
        if step.path != path:
            continue
        if isinstance(step, Move):
            return path if files.exists(path) else step.target
        if journal.existed[number] and files.exists(journal.backup(number)):
            return journal.backup(number)
    return path


# Undoing.


def _check_backups(files: Files, journal: Journal) -> None:
    for number, step in enumerate(journal.steps):
        if isinstance(step, Move) or journal.states.get(number) != "applied" or not journal.existed[number]:
            continue
        if not files.exists(journal.backup(number)):
            raise KopsError(f"{journal.backup(number)}: the backup of {step.path} is gone. Use --force to restore the rest")


def _check_unchanged(files: Files, journal: Journal) -> None:
    for number, step in enumerate(journal.steps):
        if journal.states.get(number) != "applied":
            continue
        path = step.target if isinstance(step, Move) else step.path
        if isinstance(step, Remove):
            changed = files.exists(path)
        elif not files.exists(path):
            changed = True
        else:
            changed = isinstance(step, Put) and _checksum(files, path) != journal.checks.get(number)
        if changed:
            raise ChangedSinceError(
                f"{path}: changed since the repair (did a broker run?). A rollback would lose these changes. Use --force to do it anyway"
            )


def _checksum(files: Files, path: str) -> int:
    check = 0
    with files.open(path) as file:
        for position in range(0, file.size(), _CHUNK):
            check = zlib.crc32(file.read(position, _CHUNK), check)
    return check


def _undo(files: Files, journal: Journal) -> int:
    undone = 0
    for number in range(len(journal.steps) - 1, -1, -1):
        if number not in journal.states:
            continue
        step = journal.steps[number]
        if isinstance(step, Move):
            if files.exists(step.target) and not files.exists(step.path):
                files.rename(step.target, step.path)
        else:
            _restore(files, journal, number)
        files.sync_dir(posixpath.dirname(step.path))
        undone += 1
    _append(files, journal, {"state": "rolled-back"})
    journal.state = "rolled-back"
    # The backups are second names of the restored files. A broker that appends to those would change the backups, too.
    for number in range(len(journal.steps)):
        if files.exists(journal.backup(number)):
            files.unlink(journal.backup(number))
    return undone


def _restore(files: Files, journal: Journal, number: int) -> None:
    path = journal.steps[number].path
    staged = path + STAGED
    if files.exists(staged):
        files.unlink(staged)
    if not journal.existed[number]:
        if files.exists(path):
            files.unlink(path)
        return
    backup = journal.backup(number)
    if _is_dir(files, backup):
        if files.exists(path):
            files.unlink(path)
        files.rename(backup, path)
    elif files.exists(backup):
        _duplicate(files, backup, staged)
        files.rename(staged, path)
        if files.exists(staged):
            files.unlink(staged)  # If both are names of one file, a rename does nothing.
