"""The golden corpus: 388 Kafka data directories, written by real Apache Kafka, with what real Kafka's tools and brokers report about them.

A test uses it like this:

    from tests.support import corpus

    @pytest.mark.parametrize("case_id", corpus.cases("damage"))          # ids only: nothing is unpacked while tests are collected
    def test_forecast(case_id: str, tmp_path: Path) -> None:
        case = corpus.load(case_id)                                      # unpacked once per archive, then instant
        case.json["modes"]["full"]["outcome"]                            # case.json, parsed
        case.root / "before" / case.json["damagedDir"]                   # files are READ-ONLY and shared by all tests
        case.text("truth/dump/before/….log.deep.txt")                    # one file; case.read(…) is bytes, case.lines(…) JSON lines
        log_dir = case.copy(tmp_path / "log", "before")                  # a writable copy of one of its folders

`tests/golden/README.md` describes the kinds of cases and their layout. Every `X.zst` and `D.tar.zst` that the corpus itself has is already
unpacked here: `files.tar.zst` became `clean/ before/ after/ truth/`, `truth/dump.tar.zst` became `truth/dump/`, `trials.jsonl.zst` became
`trials.jsonl`.

The archives are unpacked into `.cache/golden/<hash of the archive>` in the project's folder. Several pytest workers may do so at once.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import os
import shutil
import tarfile
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from kops.records import Record

PROJECT = Path(__file__).resolve().parent.parent.parent
GOLDEN = PROJECT / "tests" / "golden"
CACHE = PROJECT / ".cache" / "golden"
ONLY_READ = 0o400  # Kafka writes metadata snapshots with this mode; copies keep it


@dataclass(frozen=True, slots=True)
class Case:
    """One case: its id, its `case.json` and the read-only folder that it is unpacked in."""

    id: str
    json: dict[str, Any]
    root: Path

    def read(self, path: str) -> bytes:
        """Return the bytes of one file. Its path is relative to the case's folder."""
        return (self.root / path).read_bytes()

    def text(self, path: str) -> str:
        """Return one file as UTF-8 text with its line ends unchanged."""
        return self.read(path).decode()

    def lines(self, path: str) -> list[Any]:
        """Return one JSON-lines file, parsed."""
        return [json.loads(line) for line in self.read(path).split(b"\n") if line]

    def files(self, folder: str = "") -> list[str]:
        """Return the sorted paths of all files in one of its folders, relative to the case's folder."""
        return sorted(path.relative_to(self.root).as_posix() for path in (self.root / folder).rglob("*") if path.is_file())

    def copy(self, dest: str | os.PathLike[str], folder: str = "") -> Path:
        """Return a writable copy of a folder (by default of the whole case) at `dest`, which must not exist or be an empty folder."""
        target = Path(dest)
        if target.exists() and any(target.iterdir()):
            raise FileExistsError(f"{target} is not empty")
        shutil.copytree(self.root / folder, target, copy_function=copy_writable, dirs_exist_ok=True)
        return target


def copy_writable(source: str, target: str) -> None:
    """Copy one file and let its owner write to it, unless Kafka itself had removed this right."""
    mode = os.stat(source).st_mode & 0o777
    with open(source, "rb") as file:
        write_sparse(Path(target), file.read(), mode if mode == ONLY_READ else mode | 0o200)


def cases(kind: str | None = None) -> list[str]:
    """Return the sorted ids of the cases.

    They are those of one kind (`format`, `exotic`, `damage`, `fuzz`, `cluster`, `broker-dir`, `broker-damage`) or group (`v0`, `v1`, `v2`
    or an archive's name). Raises ValueError for a kind that no case has.
    """
    found = [name for name, entry in index().items() if kind in (None, entry["kind"], entry["group"])]
    if not found:
        raise ValueError(f"no case of kind {kind!r}")
    return sorted(found)


def load(case_id: str) -> Case:
    """Return one case. Its archive is unpacked if necessary. Raises KeyError for an unknown id."""
    root = unpack(GOLDEN / f"corpus-{index()[case_id]['group']}.tar.zst") / case_id
    return Case(case_id, json.loads((root / "case.json").read_text()), root)


@functools.cache
def index() -> dict[str, dict[str, str]]:
    """Return `tests/golden/index.json`: id → kind, kafka (version), group."""
    found: dict[str, dict[str, str]] = json.loads((GOLDEN / "index.json").read_text())
    return found


@functools.cache
def unpack(archive: Path) -> Path:
    """Return the folder that an archive is unpacked in.

    It appears as a whole, even if other workers unpack the archive at the same time.
    """
    with open(archive, "rb") as file:
        target = CACHE / hashlib.file_digest(file, "sha256").hexdigest()[:20]
    if target.is_dir():
        return target
    CACHE.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix="unpacking-", dir=CACHE))
    try:
        with open(archive, "rb") as file:
            stream = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(file)
            with tarfile.open(fileobj=stream, mode="r|") as tar:
                for member in tar:
                    unpack_member(tar, member, beside)
        beside.chmod(0o755)
        try:
            beside.rename(target)
        except OSError:
            if not target.is_dir():  # else another worker was faster: its folder is just as good
                raise
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one member as a read-only file."""
    path = target / member.name
    path.parent.mkdir(parents=True, exist_ok=True)
    if member.isdir():
        path.mkdir(exist_ok=True)
        return
    content = tar.extractfile(member)
    assert content is not None, f"{member.name}: neither file nor folder"
    write_sparse(path, content.read(), member.mode & 0o555)


def write_sparse(path: Path, data: bytes, mode: int) -> None:
    """Write a file. The zeros at its end (10 MiB in each preallocated index) become a hole."""
    with open(path, "wb") as file:
        file.write(data.rstrip(b"\0"))
        file.truncate(len(data))
    path.chmod(mode)


def as_truth(record: Record) -> dict[str, Any]:
    """Return a record as a line of `truth/records`."""
    headers = [[name if isinstance(name, str) else name.decode("utf-8", "replace"), encoded(value)] for name, value in record.headers]
    return {
        "offset": record.offset,
        "timestamp": record.timestamp,
        "tsType": record.timestamp_type,
        "key": encoded(record.key),
        "value": encoded(record.value),
        "headers": headers,
        "leaderEpoch": record.leader_epoch,
    }


def encoded(data: bytes | None) -> str | None:
    """Return bytes in base64, as in `truth/records`."""
    return None if data is None else base64.b64encode(data).decode()


def apply_damage(folder: Path, ops: Iterable[dict[str, Any]]) -> None:
    """Apply a fuzz trial's `ops` (or a broker-damage case's `damage`) to a writable copy, in order.

    For a fuzz trial this is a copy of `base/<partition>`, for a broker-damage case a copy of `clean`. Damage of kind `damage` may be
    incomplete (`create` without its data); use `before/` there.
    """
    for op in ops:
        path = folder / op["file"]
        match op["op"]:
            case "flipBit" | "write":
                with open(path, "r+b") as file:
                    file.seek(op["position"])
                    file.write(bytes.fromhex(op["new"]))
            case "truncate":
                os.truncate(path, op["newSize"])
            case "append":
                with open(path, "ab") as file:
                    file.write(bytes.fromhex(op["data"]))
            case "cut":
                data = path.read_bytes()
                path.write_bytes(data[: op["position"]] + data[op["position"] + op["bytes"] :])
            case "delete":
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            case "create":
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes((folder / op["copyOf"]).read_bytes() if "copyOf" in op else op["new"].encode())
            case "rename":
                path.rename(folder / op["to"])
            case "rewrite":
                path.write_bytes(bytes.fromhex(op["newHex"]) if "newHex" in op else op["new"].encode())
            case "createDir":
                path.mkdir(parents=True)
            case other:
                raise ValueError(f"no such damage: {other}")
