"""Carving, the plan of a heal, and a comparison of replicas: questions of `python -m tests.bench`.

The images are made once and kept in `.cache/bench`. `programs` are shared libraries of the machine, so their bytes differ from machine to
machine. `noise` is what compressed or encrypted files look like. `plain` and `small` are logs from end to end, with batches of 16 KiB and
1 KiB.
"""

from __future__ import annotations

import os
import random
import shutil
import struct
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path

from kops.records import BatchBuilder, crc32c
from tests.bench import data
from tests.bench.measure import Contender, Figure, compare

ASKED = {"programs": 1.0, "noise": 1.0, "zeroes": 1.0, "plain": 0.5, "small": 0.5}
"""GB a CPU second."""
_PIECE = 1 << 20


def _kops(name: str, *arguments: str, allowed: tuple[int, ...] = (0,)) -> Contender:
    return Contender(name, [str(Path(sys.executable).with_name("kops")), *arguments], allowed=allowed)


def image(kind: str, size: int) -> Path:
    """Return a file of `size` bytes of this kind (see `ASKED`)."""
    if kind == "plain":
        return data.segment("plain", size)
    path = data.CACHE / f"image-{kind}-{size}"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    makers: dict[str, Callable[[], Iterator[bytes]]] = {"programs": _programs, "noise": _noise, "zeroes": _zeroes, "small": _small_batches}
    with open(partial, "wb") as file:
        for piece in makers[kind]():
            file.write(piece[: size - file.tell()])
            if file.tell() == size:
                break
    partial.rename(path)
    return path


def _programs() -> Iterator[bytes]:
    folders = ("/usr/lib", sysconfig.get_paths()["stdlib"], sysconfig.get_config_var("LIBDIR") or "/usr/lib")
    while True:
        found = 0
        for folder in folders:
            for path in sorted(Path(folder).rglob("*.so*")):
                if path.is_file() and not path.is_symlink():
                    contents = path.read_bytes()
                    found += len(contents)
                    yield contents
        if not found:
            raise RuntimeError(f"no shared libraries below {', '.join(folders)}")


def _noise() -> Iterator[bytes]:
    chance = random.Random(1)
    while True:
        yield chance.randbytes(_PIECE)


def _zeroes() -> Iterator[bytes]:
    while True:
        yield bytes(_PIECE)


def _small_batches() -> Iterator[bytes]:
    builder = BatchBuilder(partition_leader_epoch=0)
    for _ in range(9):
        builder.append(data.FIRST_TIMESTAMP, None, data.text(random.Random(1), 100))
    batch = bytearray(builder.build())
    offset = 0
    while True:
        pieces = []
        for _ in range(1024):
            struct.pack_into(">q", batch, 0, offset)
            struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
            pieces.append(bytes(batch))
            offset += builder.count
        yield b"".join(pieces)


def carve(size: int, rounds: int) -> list[Figure]:
    """`carve` of images without batches and of full ones. The rate is without the start, which the last line shows."""
    out = data.CACHE / "carved"
    figures: list[Figure] = []
    tiny = data.CACHE / "image-tiny"
    tiny.parent.mkdir(parents=True, exist_ok=True)
    tiny.write_bytes(b"nothing")
    for kind, path in [*((kind, image(kind, size)) for kind in ASKED), ("start", tiny)]:
        taken: list[Figure] = []
        for _ in range(rounds):
            shutil.rmtree(out, ignore_errors=True)
            taken += compare([_kops(kind, "log", "carve", "-q", str(path), "--out", str(out), allowed=(0, 4, 64))], 1)
        figures.append(sorted(taken, key=lambda each: each.cpu_s)[len(taken) // 2])
    shutil.rmtree(out, ignore_errors=True)
    for each, asked in zip(figures, ASKED.values(), strict=False):
        rate = size / 1e9 / max(each.cpu_s - figures[-1].cpu_s, 1e-3)
        each.target = f"{rate:.2f} GB a CPU second; asked >={asked}, <=300 MiB"
    return figures


def _replicas(size: int) -> list[str]:
    """Return three replicas of one partition with equal segments; one byte of the first is damaged."""
    source = data.segment("plain", size).parent
    folders = [data.CACHE / f"replicas-{size}" / f"broker-{number}" / source.name for number in range(3)]
    for folder in folders:
        if not folder.exists():
            shutil.copytree(source, folder)
            (folder / ".complete").unlink()
            if folder is folders[0]:
                with open(next(folder.glob("*.log")), "r+b") as log:
                    log.seek(size // 2)
                    log.write(b"\xff\xff\xff")
    return [str(folder) for folder in folders]


def heal_plan(size: int, rounds: int) -> list[Figure]:
    """The plan of a heal of one of three replicas, and `verify` of all three in one process, at two levels."""
    damaged, *others = _replicas(size)
    plan = _kops("heal -n", "log", "heal", "-n", damaged, "--from", *others, allowed=(0, 4))
    flags = ("log", "verify", "-q", "--jobs", "1", damaged, *others)
    checks = [_kops(f"verify --level {level}", *flags, "--level", level, allowed=(0, 4)) for level in ("crc", "full")]
    figures = compare([plan, *checks], rounds)
    figures[0].target = ">=1x CPU"
    return figures


def diff(size: int, rounds: int) -> list[Figure]:
    """`diff` of three replicas."""
    folders = _replicas(size)
    total = sum(os.stat(path).st_size for folder in folders for path in Path(folder).glob("*.log"))
    figures = compare([_kops("diff", "log", "diff", *folders, allowed=(0, 4))], rounds)
    figures[0].target = f"{total / 1e9 / figures[0].cpu_s:.2f} GB a CPU second; asked >=1"
    return figures
