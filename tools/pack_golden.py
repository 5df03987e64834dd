"""Pack a corpus of Kafka data directories into the archives under tests/golden.

Usage: python tools/pack_golden.py CORPUS [OUT]

CORPUS is a folder with one folder for each case (`case.json` inside); OUT defaults to tests/golden. One `corpus-<group>.tar.zst` is written
for each group of cases, and an `index.json` that lists the cases, their kind and their archive. Compressed members of a case (`X.zst`,
`D.tar.zst`) are unpacked first, so that each archive is one solid zstd frame: forty variations of one directory cost little more than one.
The SHA-256 values in the corpus are checked. The archives are reproducible: sorted, no owner, no time.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import zstandard

GROUPS = {
    "exotic": "exotic",
    "broker-dir": "broker",
    "cluster": "cluster",
    "damage": "damage",
    "fuzz": "fuzz",
    "broker-damage": "broker-damage",
}
MTIME = 1_577_836_800  # 2020-01-01: one time for all members, loading never depends on it
LEVEL, WINDOW_LOG = 19, 27


def group_of(case: dict[str, object]) -> str:
    """The archive a case belongs to: by its kind, the format cases by their message format."""
    kind = str(case["kind"])
    return str(case["id"])[:2] if kind == "format" else GROUPS[kind]


def unpacked(folder: Path) -> Iterator[tuple[str, int, bytes | None]]:
    """(path, mode, data) of all files and (path, mode, None) of all folders of a case, with compressed members unpacked, recursively."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if path.is_dir():
            yield name, 0o755, None
        elif name.endswith(".tar.zst"):
            parent = path.parent.relative_to(folder).as_posix()
            yield from tar_members("" if parent == "." else parent + "/", expand(path.read_bytes()))
        elif name.endswith(".zst"):
            yield name[:-4], 0o644, expand(path.read_bytes())
        else:
            yield name, 0o644, path.read_bytes()


def tar_members(prefix: str, data: bytes) -> Iterator[tuple[str, int, bytes | None]]:
    """The members of a tar file; its own compressed members are unpacked, too."""
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        for member in tar:
            name = prefix + member.name.rstrip("/")
            if member.isdir():
                yield name, 0o755, None
                continue
            content = tar.extractfile(member)
            if content is None:
                raise SystemExit(f"{name}: neither file nor folder")
            body = content.read()
            mode = 0o400 if member.mode & 0o777 == 0o400 else 0o644
            if name.endswith(".zst"):
                name, body = name[:-4], expand(body)
            yield name, mode, body


def expand(data: bytes) -> bytes:
    """One zstd frame, also with a long window."""
    reader = zstandard.ZstdDecompressor(max_window_size=1 << 31).stream_reader(io.BytesIO(data), read_across_frames=True)
    return reader.read()


def stated_hashes(case: dict[str, object], files: dict[str, bytes]) -> Iterator[tuple[str, str]]:
    """(path, SHA-256) from the case."""
    if "sha256.json" in files:
        for folder, entries in json.loads(files["sha256.json"]).items():
            for path, entry in entries.items():
                yield f"{folder}/{path}", entry["sha256"]
    for folder in ("clean", "before"):
        entries = case.get(folder, {})
        if isinstance(entries, dict):
            for path, entry in entries.items():
                yield f"{folder}/{path}", entry["sha256"]


def pack_case(folder: Path, tar: tarfile.TarFile) -> None:
    """Add one case to an archive, and check its statements about its files."""
    case = json.loads((folder / "case.json").read_text())
    members = sorted({name: (mode, data) for name, mode, data in unpacked(folder)}.items())
    files = {name: data for name, (_, data) in members if data is not None}
    for name, stated in stated_hashes(case, files):
        if hashlib.sha256(files[name]).hexdigest() != stated:
            raise SystemExit(f"{folder.name}/{name}: not the bytes that the case states")
    empty = set(case.get("emptyDirs", ()))
    for name, (mode, data) in members:
        info = tarfile.TarInfo(f"{folder.name}/{name}")
        info.mode, info.mtime = mode, MTIME
        if data is None:
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        else:
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    missing = [name for name in empty if f"before/{name}" not in dict(members)]
    if missing:
        raise SystemExit(f"{folder.name}: empty folders are missing: {missing}")


def main(corpus: Path, out: Path) -> None:
    """Write every archive and the index."""
    groups: dict[str, list[Path]] = {}
    index: dict[str, dict[str, str]] = {}
    for path in sorted(corpus.glob("*/case.json")):
        case = json.loads(path.read_text())
        group = group_of(case)
        groups.setdefault(group, []).append(path.parent)
        index[path.parent.name] = {"kind": str(case["kind"]), "kafka": str(case["kafka"]), "group": group}
    out.mkdir(parents=True, exist_ok=True)
    for group, folders in sorted(groups.items()):
        target = out / f"corpus-{group}.tar.zst"
        buffer = io.BytesIO()
        with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for folder in folders:
                pack_case(folder, tar)
        raw = buffer.getvalue()
        parameters = zstandard.ZstdCompressionParameters.from_level(
            LEVEL, source_size=len(raw), window_log=WINDOW_LOG, enable_ldm=True, write_checksum=True
        )
        target.write_bytes(zstandard.ZstdCompressor(compression_params=parameters).compress(raw))
        print(f"{target.name}: {len(folders)} cases, {len(raw):,} bytes, packed {target.stat().st_size:,}", flush=True)
    (out / "index.json").write_text(json.dumps(index, indent=0, sort_keys=True) + "\n")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent.parent / "tests" / "golden")
