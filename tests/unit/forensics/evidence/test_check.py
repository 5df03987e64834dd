"""A case that was changed after its collection, and manifests with paths that lead elsewhere."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kops.errors import DecodeError, NotFoundError, UsageError
from kops.forensics.evidence.check import Difference, check_case
from kops.forensics.evidence.collect import CollectOptions, collect
from kops.forensics.evidence.names import get_name, parts_of, put_name, shown, sum_line


@pytest.fixture
def case(tmp_path: Path) -> Path:
    source = tmp_path / "data"
    (source / "a").mkdir(parents=True)
    (source / "empty").mkdir()
    (source / "a" / "one").write_text("one")
    (source / "two").write_text("two")
    (source / "link").symlink_to("two")
    collect([str(source)], str(tmp_path / "case"), CollectOptions())
    return tmp_path / "case"


def differences(case: Path, **options: Any) -> list[tuple[str, str]]:
    return [(each.state, each.file) for each in check_case(str(case), **options).differences]


def copy(case: Path) -> Path:
    return case / "data" / "1" / "data"


def rewrite(path: Path, data: bytes) -> None:
    path.unlink()
    path.write_bytes(data)


CHANGES: list[tuple[Callable[[Path], object], list[tuple[str, str]]]] = [
    (lambda case: rewrite(copy(case) / "two", b"too"), [("changed", "data/1/data/two")]),
    (lambda case: rewrite(copy(case) / "two", b"longer"), [("changed", "data/1/data/two")]),
    (lambda case: (copy(case) / "a" / "one").unlink(), [("missing", "data/1/data/a/one")]),
    (lambda case: (copy(case) / "empty").rmdir(), [("missing", "data/1/data/empty")]),
    (lambda case: (copy(case) / "three").write_text("x"), [("additional", "data/1/data/three")]),
    (lambda case: (copy(case) / "new").mkdir(), [("additional", "data/1/data/new")]),
    (lambda case: (case / "note.txt").write_text("x"), [("additional", "note.txt")]),
    (lambda case: (copy(case) / "link").symlink_to("/etc/passwd"), [("additional", "data/1/data/link")]),
    (lambda case: rewrite(case / "SHA256SUMS", b""), [("changed", "SHA256SUMS")]),
    (lambda case: (case / "SHA256SUMS").unlink(), [("missing", "SHA256SUMS")]),
    (lambda case: rewrite(case / "verify.json", b"{}"), [("changed", "verify.json")]),
]


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_what_was_changed_is_found(case: Path, change: Callable[[Path], object], expected: list[tuple[str, str]]) -> None:
    assert differences(case) == []
    change(case)
    assert differences(case) == expected


def test_a_file_that_became_something_else(case: Path, tmp_path: Path) -> None:
    (copy(case) / "two").rename(tmp_path / "two")
    (copy(case) / "two").symlink_to(tmp_path / "two")
    assert differences(case) == [("changed", "data/1/data/two")]
    (copy(case) / "two").unlink()
    os.mkfifo(copy(case) / "two")
    assert check_case(str(case)).differences == [Difference("changed", "data/1/data/two", "it was a file and is a fifo")]


def test_a_directory_that_became_a_link(case: Path, tmp_path: Path) -> None:
    (copy(case) / "a").rename(tmp_path / "elsewhere")
    (copy(case) / "a").symlink_to(tmp_path / "elsewhere")
    assert differences(case) == [("changed", "data/1/data/a"), ("missing", "data/1/data/a/one")]


def test_a_changed_manifest_is_found_by_its_hash(case: Path) -> None:
    original = hashlib.sha256((case / "manifest.json").read_bytes()).hexdigest()
    assert differences(case, manifest_sha256=original.upper()) == []
    rewrite(copy(case) / "two", b"too")
    manifest = json.loads((case / "manifest.json").read_bytes())
    entry = next(each for each in manifest["entries"] if each["path"] == "two")
    entry["sha256"] = hashlib.sha256(b"too").hexdigest()
    forge(case, manifest)
    assert differences(case) == []
    assert differences(case, manifest_sha256=original) == [("changed", "manifest.json")]
    assert any("--manifest-sha256" in note for note in check_case(str(case)).notes)
    for wrong in ("", "x", original[:-1], original + "0"):
        with pytest.raises(UsageError, match="64 hexadecimal digits"):
            check_case(str(case), manifest_sha256=wrong)


def forge(case: Path, manifest: dict[str, Any]) -> None:
    """Write a manifest with matching hashes."""
    from kops.forensics.evidence.case import manifest_bytes, sums_bytes

    head = {key: value for key, value in manifest.items() if key != "entries"}
    data = manifest_bytes(head, manifest["entries"])
    rewrite(case / "manifest.json", data)
    try:
        rewrite(case / "SHA256SUMS", sums_bytes(manifest, hashlib.sha256(data).hexdigest()))
    except DecodeError:
        return


@pytest.mark.parametrize("name", ["../../../outside", "/etc/passwd", "a/../../../../../outside", "a//one", "./two", "", "two\0"])
@pytest.mark.parametrize("where", ["entry", "document", "source"])
def test_a_manifest_leads_nowhere(case: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, where: str) -> None:
    (tmp_path / "outside").write_text("two")
    manifest = json.loads((case / "manifest.json").read_bytes())
    if where == "entry":
        next(each for each in manifest["entries"] if each["path"] == "two")["path"] = name
    elif where == "document":
        manifest["documents"][0]["path"] = name
    else:
        manifest["sources"][0]["data"] = name
    forge(case, manifest)
    opened: list[str] = []
    really = os.open

    def watched(*arguments: Any, **more: Any) -> int:
        fd = really(*arguments, **more)
        opened.append(os.readlink(f"/proc/self/fd/{fd}"))
        return fd

    monkeypatch.setattr(os, "open", watched)
    found = check_case(str(case)).differences
    assert ("unsafe-name", name if where != "source" else found[0].file) in [(each.state, each.file) for each in found]
    assert len(opened) > 5 and all(path == str(case) or path.startswith(f"{case}/") for path in opened)


def test_manifests_that_are_none(case: Path, tmp_path: Path) -> None:
    manifest = json.loads((case / "manifest.json").read_bytes())
    broken: list[object] = [
        [],
        {},
        {**manifest, "schema": "kops.evidence/v2"},
        {**manifest, "entries": {}},
        {**manifest, "entries": [1]},
        {**manifest, "entries": [{"source": "1", "path": "a", "type": "file"}]},
        {**manifest, "entries": [{"source": 1, "path": 1, "type": "file"}]},
        {**manifest, "entries": [{"source": 1, "path": "a", "type": "file", "sha256": "0"}]},
        {**manifest, "documents": [{"path": "x"}]},
        {**manifest, "sources": [{}]},
        {**manifest, "mode": "other"},
        {**manifest, "case": None},
    ]
    for each in [*(json.dumps(document).encode() for document in broken), b"", b"\xff", b"[" * 100_000]:
        rewrite(case / "manifest.json", each)
        with pytest.raises(DecodeError):
            check_case(str(case))
    (case / "manifest.json").unlink()
    with pytest.raises(NotFoundError, match="not a case"):
        check_case(str(case))
    for nothing, reason in ((tmp_path / "none", "no such directory"), (tmp_path / "data" / "two", "not a directory")):
        with pytest.raises(NotFoundError, match=reason):
            check_case(str(nothing))


def test_an_entry_of_a_directory_that_is_not_in_the_manifest(case: Path) -> None:
    manifest = json.loads((case / "manifest.json").read_bytes())
    manifest["entries"].append({"source": 9, "path": "x", "type": "file", "sha256": "0" * 64, "size_read": 1})
    manifest["entries"].append({"source": 9, "path": "y", "type": "directory"})
    forge(case, manifest)
    assert [each for each in differences(case) if each[0] == "unsafe-name"] == [("unsafe-name", "x"), ("unsafe-name", "y")]


def make_link(path: Path, target: str) -> Path:
    path.symlink_to(target)
    return path


ORIGINALS: list[tuple[Callable[[Path], object], tuple[str, str]]] = [
    (lambda data: (data / "two").write_text("too"), ("changed", "two")),
    (lambda data: (data / "two").chmod(0o604), ("changed", "two")),
    (lambda data: os.utime(data / "two", ns=(5, 5)), ("changed", "two")),
    (lambda data: (data / "a" / "one").unlink(), ("missing", "a/one")),
    (lambda data: os.replace(make_link(data / "other", "a"), data / "link"), ("changed", "link")),
    (lambda data: (data / "three").write_text("x"), ("additional", "three")),
]


@pytest.mark.parametrize(("change", "expected"), ORIGINALS)
def test_originals(case: Path, tmp_path: Path, change: Callable[[Path], object], expected: tuple[str, str]) -> None:
    assert differences(case, originals=True) == []
    change(tmp_path / "data")
    assert differences(case) == []
    assert differences(case, originals=True) == [(expected[0], str(tmp_path / "data" / expected[1]))]


def test_originals_that_are_gone(case: Path, tmp_path: Path) -> None:
    (tmp_path / "data").rename(tmp_path / "moved")
    assert differences(case, originals=True) == [("missing", str(tmp_path / "data"))]


def test_names_come_back() -> None:
    for name in (b"a", b"\xff", b"a\nb", "ä".encode(), b"\\", b"\xed\xa0\x80"):
        document: dict[str, Any] = {}
        put_name(document, "path", name)
        assert get_name(json.loads(json.dumps(document)), "path") == name
        assert shown(name).isprintable() or b"\n" in name
    for wrong in ({}, {"path": 1}, {"path": "a", "path_base64": "?"}, {"path": "a", "path_base64": 1}, {"path": "\udcff"}):
        with pytest.raises(DecodeError):
            get_name(wrong, "path")
    assert parts_of(b"a/b..c/...") == (b"a", b"b..c", b"...")
    assert sum_line("0", b"a\nb") == b"\\0  a\\nb\n"
