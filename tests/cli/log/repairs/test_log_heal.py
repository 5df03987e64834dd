"""`kops log heal` on the command line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.support import corpus

Kops = Callable[..., Ran]


@pytest.fixture
def dirs(tmp_path: Path) -> list[Path]:
    """Provide a damaged log directory, and two of other replicas."""
    case = corpus.load("damage-4.3.0-two-flips")
    return [case.copy(tmp_path / name, folder) for name, folder in (("two", "before"), ("one", "clean"), ("three", "clean"))]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_plan_heal_and_rollback(kops: Kops, dirs: list[Path]) -> None:
    damaged, one, three = map(str, dirs)
    before = contents(dirs[0])
    ran = kops("log", "heal", "-n", damaged, "--from", one, three)
    assert ran.code == 4
    assert ran.text.count("rewrite-log") == 2
    assert "offsets 21-23 can come from" in ran.err
    assert "nothing was written" in ran.err
    assert contents(dirs[0]) == before
    ran = kops("log", "heal", "-y", damaged, "--from", one, "--from", three, "--format", "json")
    assert ran.code == 1
    document = json.loads(ran.text)
    assert document["schema"] == "kops.heal/v1"
    (partition,) = document["partitions"]
    assert [(each["first_offset"], each["last_offset"]) for each in partition["filled"]] == [(21, 23), (87, 89)]
    assert contents(dirs[0]) == contents(dirs[1])
    ran = kops("log", "heal", "-y", damaged, "--from", one)
    assert (ran.code, ran.text) == (0, "")
    assert "nothing to do" in ran.err
    assert kops("log", "repair", "--rollback", document["journals"][0]).code == 1
    assert contents(dirs[0]) == before


def test_what_no_replica_has(kops: Kops, dirs: list[Path]) -> None:
    damaged, one, three = map(str, dirs)
    for folder in dirs[1:]:
        (log,) = folder.rglob("00000000000000000084.log")
        log.write_bytes((dirs[0] / log.relative_to(folder)).read_bytes())
    ran = kops("log", "heal", "-y", damaged, "--from", one, three)
    assert ran.code == 65
    assert "no replica has offsets 87-89" in ran.err


def test_wrong_usage(kops: Kops, dirs: list[Path], tmp_path: Path) -> None:
    damaged, one, _ = map(str, dirs)
    assert kops("log", "heal", damaged).code == 16
    assert kops("log", "heal", "-n", "-y", damaged, "--from", one).code == 16
    for rest in (("--frm", one), ("--from", one, "--frm", one)):
        assert kops("log", "heal", damaged, *rest).err.startswith("kops: error: no such option: --frm, did you mean --from?")
    ran = kops("log", "heal", damaged, "--from", damaged)
    assert ran.code == 16
    assert "directory to heal" in ran.err
    assert kops("log", "heal", damaged, "--from", str(tmp_path / "nothing")).code != 0


def test_every_directory_after_from_is_a_source(kops: Kops, dirs: list[Path]) -> None:
    damaged, one, three = map(str, dirs)
    for line in (
        [damaged, "--from", one, three],
        [damaged, "-n", f"--from={one}", "--index-interval-bytes", "4096", three],
        ["-n", damaged, "--from", one, "--", three],
        ["--", damaged],
    ):
        ran = kops("log", "heal", "--format", "json", *line)
        assert ran.code == (4 if len(line) > 2 else 16), line
        assert len(line) == 2 or f"heals {damaged} from {one}, {three}" in ran.err
    before = contents(dirs[0]), contents(dirs[1])
    for line, words in (
        ([damaged, one, "--from", three], f"unexpected argument {one}"),
        (["--from", one, damaged], "missing argument DIR: give it before --from"),
        ([damaged, one], f"unexpected argument {one}"),
        ([damaged, "--from"], "'--from' requires an argument"),
    ):
        ran = kops("log", "heal", "-y", *line)
        assert ran.code == 16, line
        assert words in ran.err
    assert (contents(dirs[0]), contents(dirs[1])) == before
