"""A case on disk: its layout, its manifest, and the hashes of everything in it.

    CASE/manifest.json    `kops.evidence/v1`: who collected when with which tool; each file, directory and link with status and hashes
    CASE/SHA256SUMS       the hashes; `sha256sum -c` of GNU coreutils checks them when run in CASE
    CASE/verify.json      the findings of kops log verify        CASE/forecast.json   those of kops log forecast
    CASE/segments.json    `kops.evidence-segments/v1`: the extents of each segment
    CASE/data/N/NAME      the copy of the N-th directory, unless the case only refers to it

Times are UTC, as text with nine decimals (JSON has no integers above 2^53).
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from kops.errors import DecodeError, NotFoundError
from kops.forensics.evidence.names import get_name, parts_of, put_name, sum_line
from kops.forensics.evidence.walk import Seen, Tree

SCHEMA: Final = "kops.evidence/v1"
SEGMENTS_SCHEMA: Final = "kops.evidence-segments/v1"
MANIFEST: Final = "manifest.json"
SUMS: Final = "SHA256SUMS"
VERIFY: Final = "verify.json"
FORECAST: Final = "forecast.json"
SEGMENTS: Final = "segments.json"
DOCUMENTS: Final = (VERIFY, FORECAST, SEGMENTS)
DATA: Final = b"data"

Document = dict[str, Any]


def utc(time_ns: int) -> str:
    """Format nanoseconds since 1970 as an ISO time in UTC. Outside the years 1 to 9999 the result is the number."""
    seconds, left = divmod(time_ns, 1_000_000_000)
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    except OverflowError:
        return str(time_ns)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{left:09d}Z" if moment.year > 999 else str(time_ns)


def entry_of(source: int, seen: Seen) -> Document:
    """Return the manifest entry of a file, directory or link, without hashes."""
    document: Document = {"source": source}
    put_name(document, "path", b"/".join(seen.parts) or b".")
    document["type"] = seen.kind
    if seen.status is not None:
        status = seen.status
        document |= {
            "size": status.st_size,
            "mode": f"{stat.S_IMODE(status.st_mode):04o}",
            "uid": status.st_uid,
            "gid": status.st_gid,
            "mtime": utc(status.st_mtime_ns),
            "ctime": utc(status.st_ctime_ns),
            "device": f"{os.major(status.st_dev)}:{os.minor(status.st_dev)}",
            "inode": status.st_ino,
            "links": status.st_nlink,
        }
        if seen.kind == "file":
            document["allocated"] = status.st_blocks * 512
        if seen.kind.endswith("-device"):
            document["special"] = f"{os.major(status.st_rdev)}:{os.minor(status.st_rdev)}"
    if seen.target is not None:
        put_name(document, "target", seen.target)
    return document


def manifest_bytes(head: Document, entries: Iterable[Document]) -> bytes:
    """Return the manifest as JSON with one entry per line."""
    lines = ",\n".join("    " + json.dumps(entry) for entry in entries)
    text = json.dumps(head, indent=2)
    return f'{text[:-2]},\n  "entries": [\n{lines}\n  ]\n}}\n'.encode()


def case_file_of(manifest: Document, entry: Document) -> bytes | None:
    """Return the path of an entry's copy in the case, or None if there is no copy. Raises DecodeError if the path leads out of the case."""
    if manifest.get("mode") != "copy" or "sha256" not in entry:
        return None
    source = source_of(manifest, entry)
    root = get_name(source, "data")
    if parts_of(root)[:1] != (DATA,):
        raise DecodeError(f"{source['data']!r} is not below {DATA.decode()}", code="unsafe-name")
    path = get_name(entry, "path")
    return b"/".join((*parts_of(root), *parts_of(path)))


def source_of(manifest: Document, entry: Document) -> Document:
    """Return the collected directory of an entry. Raises DecodeError if the manifest does not have it."""
    number = entry.get("source")
    for source in manifest["sources"]:
        if source["number"] == number:
            found: Document = source
            return found
    raise DecodeError(f"an entry names the directory {number!r}, which is not in the manifest")


def sums_bytes(manifest: Document, manifest_sha256: str) -> bytes:
    """Return `SHA256SUMS`: the case's own files and the copies (the originals if nothing was copied). Raises DecodeError."""
    lines = [sum_line(manifest_sha256, MANIFEST.encode())]
    lines += [sum_line(str(each["sha256"]), get_name(each, "path")) for each in manifest["documents"]]
    for entry in manifest["entries"]:
        if "sha256" not in entry:
            continue
        name = case_file_of(manifest, entry)
        if name is None:
            name = os.path.join(get_name(source_of(manifest, entry), "path"), get_name(entry, "path"))
        lines.append(sum_line(str(entry["sha256"]), name))
    return b"".join(lines)


def read_file(tree: Tree, name: str) -> bytes:
    """Read a file of the case itself. Raises OSError."""
    with os.fdopen(tree.open((name.encode(),)), "rb") as file:
        return file.read()


def open_case(path: str) -> Tree:
    """Open the directory of a case. Raises NotFoundError."""
    try:
        return Tree(os.fsencode(os.path.realpath(path)))
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such directory") from error
    except NotADirectoryError as error:
        raise NotFoundError(f"{path}: not a directory, so it is no case of kops evidence collect") from error


def read_manifest(tree: Tree, path: str) -> tuple[Document, str]:
    """Return the manifest of a case and its hash. Raises NotFoundError if there is none, DecodeError if it is malformed."""
    where = os.path.join(path, MANIFEST)
    try:
        data = read_file(tree, MANIFEST)
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: not a case of kops evidence: it has no {MANIFEST}") from error
    return parse_manifest(data, where), hashlib.sha256(data).hexdigest()


def parse_manifest(data: bytes, file: str) -> Document:
    """Parse a manifest, and check all fields that other code relies on. Raises DecodeError."""
    manifest = parse_document(data, file, SCHEMA)
    lists = ("sources", "entries", "documents", "findings")
    if any(not isinstance(manifest.get(key), list) or any(not isinstance(each, dict) for each in manifest[key]) for key in lists):
        raise DecodeError(f"{', '.join(lists)} have to be lists of objects", file=file)
    if manifest.get("mode") not in ("copy", "reference") or not isinstance(manifest.get("case"), dict):
        raise DecodeError("mode or case is missing", file=file)
    for source in manifest["sources"]:
        _check(source, {"number": int, "path": str}, file)
    for each in manifest["documents"]:
        _check(each, {"path": str, "size": int, "sha256": str}, file)
    for entry in manifest["entries"]:
        _check(entry, {"source": int, "path": str, "type": str}, file)
        if "sha256" in entry:
            _check(entry, {"sha256": str, "size_read": int}, file)
    return manifest


def parse_document(data: bytes, file: str, schema: str) -> Document:
    """Parse a JSON document, and check its schema. Raises DecodeError."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DecodeError(f"not JSON: {error}", file=file) from error
    if not isinstance(document, dict) or document.get("schema") != schema:
        raise DecodeError(f"not a document of {schema}", file=file)
    return document


def _check(document: Mapping[str, Any], wanted: Mapping[str, type], file: str) -> None:
    for key, kind in wanted.items():
        if not isinstance(document.get(key), kind) or isinstance(document[key], bool):
            raise DecodeError(f"{key} is missing or not of its type in {json.dumps(document)[:200]}", file=file)
