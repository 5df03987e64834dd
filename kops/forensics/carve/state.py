"""The state from which an interrupted `kops log carve` continues: `kops-carve.json` in the output directory, and the fragments found so
far.

The list of fragments only grows, and each is flushed before the state counts it. So after a crash the list may have lines that the state
does not count, never the reverse, and those lines are cut off.
"""

from __future__ import annotations

import json
import posixpath
from dataclasses import dataclass, field
from typing import Any, Final

from kops.errors import UsageError
from kops.files import Files
from kops.files.urls import is_url
from kops.forensics.carve.fragments import Fragment
from kops.forensics.carve.search import Look

__all__ = ["FOUND_FILE", "SCHEMA", "STATE_FILE", "Progress", "State"]

SCHEMA: Final = "kops.carve/v1"
STATE_FILE: Final = "kops-carve.json"
FOUND_FILE: Final = "kops-carve.found.jsonl"


@dataclass(slots=True)
class Progress:
    """How far one image was read, and the fragment that may continue there. For the rest see `Done`."""

    image: str
    size: int
    position: int = 0
    last: Fragment | None = None
    nested: int = 0
    damaged: int = 0
    proved: list[int] = field(default_factory=list)
    unreadable: list[tuple[int, int]] = field(default_factory=list)
    """Ranges of bytes that were skipped, or are missing because the image became shorter."""


@dataclass(slots=True)
class State:
    """All images, what is looked for, the size of the list of fragments, and the directories that were written."""

    out: str
    look: Look
    images: list[Progress]
    listed: int = 0
    logs: list[str] = field(default_factory=list)

    def save(self, files: Files, found: list[Fragment]) -> None:
        """Append these fragments to the list, then count them."""
        if found:
            lines = b"".join(json.dumps(each.to_json(), separators=(",", ":")).encode() + b"\n" for each in found)
            path = posixpath.join(self.out, FOUND_FILE)
            if is_url(path):  # An object can't grow.
                files.write_atomic(path, (files.read_all(path)[: self.listed] if self.listed else b"") + lines)
            else:
                with files.open(path, "create") as file:
                    file.truncate(self.listed)
                    file.write(self.listed, lines)
                    file.sync()
            self.listed += len(lines)
        document: dict[str, Any] = {
            "schema": SCHEMA,
            "min_magic": self.look.oldest,
            "large_offsets": self.look.large_offsets,
            "listed": self.listed,
            "logs": self.logs,
            "images": [
                {
                    "image": each.image,
                    "size": each.size,
                    "position": each.position,
                    "last": None if each.last is None else each.last.to_json(),
                    "nested": each.nested,
                    "damaged": each.damaged,
                    "proved": each.proved,
                    "unreadable": each.unreadable,
                }
                for each in self.images
            ],
        }
        files.write_atomic(posixpath.join(self.out, STATE_FILE), json.dumps(document, indent=1).encode() + b"\n")

    @classmethod
    def load(cls, files: Files, out: str) -> tuple[State, list[Fragment]]:
        """The state of an earlier run and its fragments. Raises UsageError if there is none."""
        path = posixpath.join(out, STATE_FILE)
        if not files.exists(path):
            raise UsageError(f"--out {out}: there is no {STATE_FILE} of an earlier run, so there is nothing to resume")
        try:
            document = json.loads(files.read_all(path))
            images = [
                Progress(
                    row["image"],
                    row["size"],
                    row["position"],
                    None if row["last"] is None else Fragment.from_json(row["last"]),
                    row["nested"],
                    row["damaged"],
                    row["proved"],
                    [(low, high) for low, high in row["unreadable"]],
                )
                for row in document["images"]
            ]
            look = Look(document["min_magic"], document.get("large_offsets", False))
            state = cls(out, look, images, document["listed"], [_own_name(name) for name in document["logs"]])
            lines = b""
            if state.listed:
                with files.open(posixpath.join(out, FOUND_FILE)) as file:
                    lines = file.read(0, state.listed)
            return state, [Fragment.from_json(json.loads(line)) for line in lines.splitlines()]
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(f"{path}: not the state of an earlier run ({error!r})") from error


def _own_name(name: str) -> str:
    """The name of a log's directory. Raises ValueError if it is not one: a state that was changed must not lead out of the directory."""
    if "/" in name or name.rpartition("-")[0] in ("", ".", "..") or not name.rpartition("-")[2].isdecimal():
        raise ValueError(f"{name!r} is not the name of a partition directory")
    return name
