"""An image that is read in ranges gives what one pass gives, wherever the borders are."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kops.errors import KopsError
from kops.files import Files, OsFiles
from kops.forensics.carve import fragments
from kops.forensics.carve.fragments import Scan
from kops.forensics.carve.ranges import Chain, Found, read_range, split_image
from kops.forensics.carve.search import EVERYTHING, Look
from kops.forensics.carve.state import Progress
from kops.forensics.recover.copies.disk import PatientFiles
from tests.support.images import DiskImage, shuffled_image, some_log
from tests.unit.forensics.recover.test_recover_disk import BadDisk

pytestmark = pytest.mark.timeout(600)
DISK = OsFiles(read_only=True)


def one_pass(path: Path, look: Look, disk: Files = DISK) -> tuple[list[fragments.Fragment], Progress]:
    """Return the closed fragments and the state after a single pass."""
    files = PatientFiles(disk)
    with files.open(str(path)) as file:
        scan = Scan(str(path), file, look=look)
        for _ in scan.windows():
            pass
    done, size = scan.done, path.stat().st_size
    state = Progress(str(path), size, done.position, done.last, done.nested, done.damaged, done.proved)
    return done.closed, replace(state, unreadable=files.unreadable(str(path), 0, size))


def in_ranges(path: Path, look: Look, target: int, disk: Files = DISK) -> tuple[list[fragments.Fragment], Progress, int, int]:
    """Return the same of ranges, and how many there are and how many were read again."""
    ranges = list(split_image(str(path), path.stat().st_size, target))
    # Each by itself, and in the form in which a resumed run reads it.
    results: list[Found | None] = [Found.from_json(read_range(PatientFiles(disk), each, look).to_json()) for each in ranges]
    chain, again = Chain(ranges), 0
    while (number := chain.add(results)) is not None:
        results[number] = read_range(PatientFiles(disk), chain.again(), look)
        again += 1
    return chain.found, chain.progress(str(path), path.stat().st_size), len(ranges), again


def check(image: DiskImage, path: Path, targets: Sequence[int], look: Look = EVERYTHING) -> tuple[int, int]:
    """Compare ranges of several sizes with one pass. Return how many ranges there were, and how many were read again."""
    image.write(path)
    found, state = one_pass(path, look)
    total = repeated = 0
    for target in targets:
        *ours, count, again = in_ranges(path, look, target)
        assert ours == [found, state], target
        total, repeated = total + count, repeated + again
    return total, repeated


def random_image(seed: int) -> DiskImage:
    """Return logs of all kinds, cut, damaged and inside each other, between foreign data."""
    chance = random.Random(seed)
    inner = some_log(chance.randrange(50), 4, producer=4) + some_log(77, 2, magic=chance.randrange(3))
    logs = [
        some_log(0, 60, producer=7),
        some_log(180, 30, producer=7, sequence=180),
        some_log(0, 25, producer=8, epoch=3),
        some_log(500, 20, magic=1),
        some_log(0, 30, magic=0),
        some_log(900, 3, producer=9, value=chance.randbytes(chance.randrange(9000))),
        some_log(40, 3, value=inner * chance.randrange(1, 9)),
        some_log(60, 2, magic=1, value=inner * chance.randrange(1, 5)),
        b"".join(some_log(base, 1, producer=base % 11, sequence=base) for base in sorted(chance.sample(range(0, 900, 3), 60))),
        b"".join(some_log(base, 1, magic=chance.choice((0, 1, 2))) for base in range(0, 120, 3)),
    ]
    image = shuffled_image(seed, logs)
    for _ in range(chance.randrange(6)):
        image.overwrite(chance.randrange(len(image.data) - 8), chance.randbytes(chance.randrange(1, 8)))
    return image


def test_random_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pytestconfig: pytest.Config) -> None:
    """Sometimes few bytes of false batches may be checked."""
    total = repeated = 0
    for seed in range(pytestconfig.getoption("--seeds") or 2):
        chance = random.Random(seed)
        monkeypatch.setattr(fragments, "WINDOW", chance.choice((500, 1 << 10, 1 << 12)))
        monkeypatch.setattr(fragments, "CREDIT", chance.choice((64 << 20, 64 << 20, 3000)))
        look = EVERYTHING if seed % 3 else Look(2, large_offsets=True)
        counts = check(random_image(seed), tmp_path / "image", (1, 3000, 20_000), look)
        total, repeated = total + counts[0], repeated + counts[1]
    assert total > 50 and repeated > 0


def test_a_log_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that is longer than many ranges, and whose batches are smaller than a window, no range is read again."""
    monkeypatch.setattr(fragments, "WINDOW", 1 << 10)
    image = DiskImage(1)
    image.foreign(300)
    image.piece(some_log(0, 300, producer=1))
    image.foreign(5000)
    image.piece(some_log(7, 200, magic=1))
    total, repeated = check(image, tmp_path / "image", (2000,))
    assert total > 20 and repeated == 0


def test_bad_places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fragments, "WINDOW", 1 << 14)
    image = DiskImage(2)
    image.piece(some_log(0, 700, producer=1))
    image.write(tmp_path / "image")
    files = BadDisk((20_000, 30_000), (32_768, 50_000), name="image")
    found, state = one_pass(tmp_path / "image", EVERYTHING, files)
    assert state.unreadable
    for target in (1, 40_000):
        assert in_ranges(tmp_path / "image", EVERYTHING, target, files)[:2] == (found, state)


def test_an_image_that_changes(tmp_path: Path) -> None:
    path = DiskImage(3).write(tmp_path / "image")
    path.write_bytes(bytes(5000))
    [one] = split_image(str(path), 5000, 1 << 20)
    path.write_bytes(bytes(4000))
    with pytest.raises(KopsError, match="had 5,000 bytes when the scan began, has 4,000 now"):
        read_range(PatientFiles(OsFiles(read_only=True)), one, EVERYTHING)
