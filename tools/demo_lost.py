"""The demo's part about lost data: three replicas that heal each other, and a partition that is carved out of a disk image."""

from __future__ import annotations

import itertools
import random
import shutil
from pathlib import Path

from kops.cli.running import exit_codes
from kops.files import OsFiles
from kops.records import Batch, scan
from kops.records.scanning.source import BytesSource
from tools.demo_show import Demo

_BROKERS = (1, 2, 3)
_PIECES = 4


def lost_data(demo: Demo) -> None:
    """Heal and carve, on copies of the cluster's directories."""
    whole = {number: logs_of(demo.folder / "cluster" / f"broker-{number}" / "orders-0") for number in _BROKERS}
    heal_each_other(demo, whole)
    carve_an_image(demo, whole[1])


def heal_each_other(demo: Demo, whole: dict[int, dict[str, bytes]]) -> None:
    """Damage a different part of each replica, then let each take what it lacks from the others."""
    demo.title("14. Three replicas, each damaged elsewhere, heal each other")
    for number in _BROKERS:
        shutil.copytree(demo.folder / "cluster" / f"broker-{number}", demo.folder / "replicas" / f"broker-{number}")
        batch, path = damage(demo.folder / "replicas" / f"broker-{number}" / "orders-0", number / (len(_BROKERS) + 1))
        demo.note(f"a bit flipped in the batch of offsets {batch.base_offset} to {batch.last_offset} of {path.relative_to(demo.folder)}")
    demo.kops("log heal -n replicas/broker-1/orders-0 --from replicas/broker-2 replicas/broker-3", code=exit_codes.PROBLEMS)
    for number in _BROKERS:
        others = " ".join(f"replicas/broker-{other}" for other in _BROKERS if other != number)
        demo.kops(f"log heal -y replicas/broker-{number}/orders-0 --from {others}", code=exit_codes.FIXED, lines=4)
    same = all(logs_of(demo.folder / "replicas" / f"broker-{number}" / "orders-0") == logs for number, logs in whole.items())
    demo.check(same, "the logs of all three are the originals, byte for byte")
    demo.kops("log verify --level full replicas/broker-1 replicas/broker-2 replicas/broker-3", code=0)


def carve_an_image(demo: Demo, logs: dict[str, bytes]) -> None:
    """Write the pieces of a log into an image in random order, and find them."""
    demo.title("15. Only a disk image is left: carve finds the batches in it")
    data = b"".join(logs[name] for name in sorted(logs))
    found = [item for item in scan(BytesSource(data)) if isinstance(item, Batch)]
    cuts = [0, *(found[len(found) * piece // _PIECES].position for piece in range(1, _PIECES)), len(data)]
    chosen = random.Random(1)
    pieces = [data[low:high] for low, high in itertools.pairwise(cuts)]
    chosen.shuffle(pieces)
    with open(demo.folder / "disk.img", "wb") as image:
        for piece in pieces:
            image.write(chosen.randbytes(3 << 20) + piece + bytes(-len(piece) % 4096) + b"somebody else's file\n" * 5000)
    demo.note(f"an image of {(demo.folder / 'disk.img').stat().st_size:,} bytes has {len(pieces)} pieces of the log, out of order")
    demo.kops("log carve disk.img --out carved --topic-hint orders-0", code=0)
    carved = logs_of(demo.folder / "carved" / "orders-0")
    demo.check(b"".join(carved[name] for name in sorted(carved)) == data, f"all {len(found)} batches are there, byte for byte")


def damage(partition: Path, where: float) -> tuple[Batch, Path]:
    """Flip a bit of a batch in this part of the log."""
    path = sorted(partition.glob("*.log"))[0]
    with OsFiles(read_only=True).open(str(path)) as log:
        batches = [item for item in scan(log) if isinstance(item, Batch)]
    hit = batches[int(len(batches) * where)]
    data = bytearray(path.read_bytes())
    data[hit.position + hit.size - 1] ^= 0x04
    path.write_bytes(data)
    return hit, path


def logs_of(partition: Path) -> dict[str, bytes]:
    """The segments of a partition by name."""
    return {path.name: path.read_bytes() for path in partition.glob("*.log")}
