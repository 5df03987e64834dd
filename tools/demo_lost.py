"""The demo's part about lost data: three replicas that heal each other, a partition that is carved out of a disk image, and a cluster that
is recovered on Spark.
"""

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
_TOPICS = ("orders", "payments", "ledger")
_PAGE = 4096


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
    demo.check(log_of(demo.folder / "carved" / "orders-0") == data, f"all {len(found)} batches are there, byte for byte")


def recover_on_spark(demo: Demo) -> None:
    """Let each broker lose something else, so that none of them has everything, and recover what they have together."""
    demo.title("17. On Spark: each of three brokers has lost something else; together nothing is lost")
    for number in _BROKERS:
        shutil.copytree(demo.folder / "cluster" / f"broker-{number}", demo.folder / "lost" / f"broker-{number}")
    lose(demo, demo.folder / "lost")
    brokers = " ".join(f"lost/broker-{number}" for number in _BROKERS)
    demo.kops(f"scan recover --master local[2] {brokers} --out rescued", code=exit_codes.FIXED, lines=7, leave_out="__")
    whole = {each.name: log_of(each) for topic in _TOPICS for each in (demo.folder / "cluster" / "broker-1").glob(f"{topic}-*")}
    same = all(log_of(demo.folder / "rescued" / name) == log for name, log in whole.items())
    size = sum(len(log) for log in whole.values())
    words = f"the logs of all {len(whole)} partitions, {size:,} bytes, are those from before the loss"
    demo.check(same, words)
    demo.facts.append(f"a cluster whose brokers had each lost something else was recovered on Spark: {words}")
    demo.kops("log verify --level full rescued/orders-0 rescued/orders-1 rescued/orders-2", code=0)


def lose(demo: Demo, brokers: Path) -> None:
    """Remove a directory from one broker, a segment from the next one, and overwrite a page of the third one."""
    shutil.rmtree(brokers / "broker-1" / "orders-1")
    demo.note("broker-1 has lost the directory of orders-1")
    segments = sorted((brokers / "broker-2" / "orders-0").glob("*.log"))
    for path in segments[0].parent.glob(f"{segments[0].stem}.*"):
        path.unlink()
    demo.note(f"broker-2 has lost the first of the {len(segments)} segments of orders-0")
    last = sorted((brokers / "broker-3" / "orders-0").glob("*.log"))[-1]
    middle = last.stat().st_size // 2
    with open(last, "r+b") as file:
        file.seek(middle)
        file.write(bytes(_PAGE))
    demo.note(f"broker-3 has {_PAGE:,} zeros in the last segment of orders-0")


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


def log_of(partition: Path) -> bytes:
    """The bytes of all segments of a partition. Replicas may divide the same log into other segments."""
    logs = logs_of(partition)
    return b"".join(logs[name] for name in sorted(logs))
