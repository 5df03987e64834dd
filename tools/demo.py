"""A demonstration of the main job (`make demo`): a cluster of kops with a real client, then offline work on its directories and on Kafka's.

First three brokers are started, a client produces, the leader is killed, and nothing is lost (`tools/demo_cluster.py`); a member of a group
is killed and continues, transactions are committed, aborted and left hanging (`tools/demo_groups.py`). Then a copy of their directories is
damaged, verified, recovered and repaired. Three damaged replicas heal each other, and a log is carved out of a disk image
(`tools/demo_lost.py`). Then come the directories of three brokers of Apache Kafka 4.3.0, `cluster-4.3.0` of the golden corpus
(`tests/golden/README.md`). Last, a cluster is recovered on Spark: each of its brokers has lost something else. Every line that begins with
`$ kops` is really run, as a process of its own; its output is shown, cut if it is long, and its exit code is checked. If anything is not as
expected, the demo says so and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from kops import forecast  # noqa: E402 - the project's folder has to be on the path first
from kops.cli.running import exit_codes  # noqa: E402
from kops.files import OsFiles  # noqa: E402
from kops.records import Batch, scan  # noqa: E402
from tests.support import corpus  # noqa: E402
from tools.demo_cluster import run_cluster  # noqa: E402
from tools.demo_lost import lost_data, recover_on_spark  # noqa: E402
from tools.demo_show import Demo  # noqa: E402

CASE = "cluster-4.3.0"
BROKERS = ("n1", "n2", "n3")


@dataclass(frozen=True)
class Places:
    """Where a copy is damaged: a bit in a log, an entry of an index, the end of a segment."""

    flipped: str
    broken_index: str
    torn: str


OF_KAFKA = Places(
    "n1/orders-epochs-0/00000000000000000000.log",
    "n2/orders-epochs-0/00000000000000000000.index",
    "n3/sensor.readings-multi-1/00000000000000000024.log",
)


def damage(brokers: Path, places: Places = OF_KAFKA) -> tuple[Batch, list[str]]:
    """Damage three files of the copy; returns the batch that was hit and a sentence for each damage."""
    with OsFiles(read_only=True).open(str(brokers / places.flipped)) as log:
        batches = [item for item in scan(log) if isinstance(item, Batch)]
    hit = batches[len(batches) // 3]
    position = hit.position + hit.size // 2
    with open(brokers / places.flipped, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
    with open(brokers / places.broken_index, "r+b") as file:
        file.seek(8 * 4)
        file.write(b"\x7f\xff\xff\xff")
    size = os.path.getsize(brokers / places.torn)
    os.truncate(brokers / places.torn, size - 25)
    return hit, [
        f"a bit flipped at byte {position} of {places.flipped}: in the batch of offsets {hit.base_offset} to {hit.last_offset}",
        f"an impossible offset in the fifth entry of {places.broken_index}",
        f"a torn tail: the last 25 of {size} bytes of {places.torn} are missing",
    ]


def cluster_places(folder: Path) -> Places:
    """Where the directories of the demo's own cluster are damaged."""
    last = sorted((folder / "broker-3" / "orders-1").glob("*.log"))[-1]
    first = "orders-0/00000000000000000000"
    return Places(f"broker-1/{first}.log", f"broker-2/{first}.index", last.relative_to(folder).as_posix())


def judge(demo: Demo, hit: Batch) -> None:
    """`verify` and `forecast` on damaged directories."""
    demo.title("9. verify finds it (and Kafka's own tool would have ended with exit code 0)")
    demo.kops("log verify --level full damaged", code=exit_codes.PROBLEMS, lines=12, wrap=True, having=("batch-crc-mismatch", "torn-tail"))
    demo.title("10. What a broker would do after a crash: discard everything that follows")
    demo.kops("log forecast --assume crash --recovery-point 0 damaged/broker-1/orders-0", code=exit_codes.PROBLEMS)
    [start] = forecast(demo.folder / "damaged" / "broker-1" / "orders-0", assume="crash", recovery_point=0).partitions
    [(first, last)] = start.lost
    demo.check(first == hit.base_offset, f"offsets {first} to {last} would be lost for {hit.last_offset - first + 1} damaged ones")
    demo.facts.append(f"a broker's start would have lost {last - first + 1} records; of them {last - hit.last_offset} are intact on disk")


def save(demo: Demo, hit: Batch) -> None:
    """`recover` to another place, and a look at what was saved."""
    demo.title("11. recover saves every intact batch, at its offset")
    demo.kops("log recover damaged/broker-1/orders-0 --out saved", code=exit_codes.LOST)
    kept = read_offsets(demo.folder / "saved" / "orders-0")
    all_offsets = read_offsets(demo.folder / "cluster" / "broker-1" / "orders-0")
    words = f"{len(kept)} of {len(all_offsets)} records, all but the damaged batch's"
    demo.check(kept == all_offsets - set(range(hit.base_offset, hit.last_offset + 1)), f"saved: {words}")
    demo.facts.append(f"recover saved {words}; repair keeps the same ones in place")


def read_offsets(partition: Path) -> set[int]:
    """The offsets of all records of a partition folder, read from intact batches."""
    offsets: set[int] = set()
    for path in sorted(partition.glob("*.log")):
        with OsFiles(read_only=True).open(str(path)) as log:
            offsets.update(record.offset for item in scan(log) if isinstance(item, Batch) for record in item.records())
    return offsets


def mend(demo: Demo, places: Places) -> None:
    """`index rebuild`, `repair`, and a clean `verify`."""
    demo.title("12. index rebuild restores the index as the broker wrote it")
    demo.kops("log index rebuild --yes damaged/broker-2/orders-0", code=exit_codes.FIXED)
    damaged, whole = demo.folder / "damaged", demo.folder / "cluster"
    same = filecmp.cmp(damaged / places.broken_index, whole / places.broken_index, shallow=False)
    demo.check(same, f"{places.broken_index} is the original, byte for byte")
    demo.title("13. repair mends the directories in place, with a journal that can be rolled back")
    demo.kops("log repair -n damaged/broker-1/orders-0", code=exit_codes.PROBLEMS, lines=10)
    demo.kops("log repair -y damaged/broker-1/orders-0", code=exit_codes.FIXED, lines=10)
    demo.kops("log repair -y damaged/broker-3/orders-1", code=exit_codes.FIXED)
    kept = read_offsets(damaged / "broker-1" / "orders-0")
    same = kept == read_offsets(demo.folder / "saved" / "orders-0")
    demo.check(same, f"the mended log holds the same {len(kept)} records, at their offsets")
    demo.kops("log verify --level full damaged", code=0)


def offline(demo: Demo) -> None:
    """The forensic part, on a copy of the cluster's directories."""
    whole, copy = demo.folder / "cluster", demo.folder / "damaged"
    demo.title("8. Its directories are Kafka's; a copy of them is damaged")
    demo.kops("log verify --level full cluster/broker-1 cluster/broker-2 cluster/broker-3", code=0)
    for node_id in (1, 2, 3):
        shutil.copytree(whole / f"broker-{node_id}", copy / f"broker-{node_id}")
    places = cluster_places(whole)
    hit, sentences = damage(copy, places)
    for sentence in sentences:
        demo.note(sentence)
    judge(demo, hit)
    save(demo, hit)
    mend(demo, places)


def of_kafka(demo: Demo) -> None:
    """What Apache Kafka itself wrote."""
    case = corpus.load(CASE)
    for broker in BROKERS:
        case.copy(demo.folder / broker, f"nodes/{broker}")
    demo.title("16. The same on what three brokers of Apache Kafka 4.3.0 left on disk")
    demo.kops("log ls n1", code=0, lines=9)
    demo.kops(f"log dump --format kafka --print-data-log {OF_KAFKA.flipped}", code=0, lines=5, having=("Log starting offset: 0",))
    demo.kops("log verify --level full n1 n2 n3", code=0)
    hit, sentences = damage(demo.folder)
    for sentence in sentences:
        demo.note(sentence)
    demo.kops("log verify --level full n1 n2 n3", code=exit_codes.PROBLEMS, lines=12, wrap=True, having=("batch-crc-mismatch", "torn-tail"))
    demo.kops("evidence collect n1 n2 n3 --out case", code=exit_codes.PROBLEMS, lines=8)
    demo.kops("evidence report case -o report.html", code=0)
    page = (demo.folder / "report.html").read_text()
    demo.check(
        "Records of 2 partitions are damaged" in page, f"report.html, {len(page) >> 10} KiB, maps the damaged bytes and says what to do"
    )
    demo.kops("log repair -y n1/orders-epochs-0 n2/orders-epochs-0 n3/sensor.readings-multi-1", code=exit_codes.FIXED, lines=5)
    words = f"only the damaged batch's records (offsets {hit.base_offset} to {hit.last_offset}) are gone"
    whole = demo.folder / "whole"
    case.copy(whole, "nodes/n1/orders-epochs-0")
    left = read_offsets(demo.folder / "n1" / "orders-epochs-0")
    demo.check(left == read_offsets(whole) - set(range(hit.base_offset, hit.last_offset + 1)), words)
    demo.kops("evidence verify case", code=0, having=("unchanged: ",))


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="DIR", help="work in this folder and leave it")
    keep = parser.parse_args().keep
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kops-demo-") as temporary:
        folder = Path(keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        demo = Demo(folder)
        run_cluster(demo)
        offline(demo)
        lost_data(demo)
        of_kafka(demo)
        recover_on_spark(demo)
        figures(demo, time.monotonic() - started)
    return 0


def figures(demo: Demo, seconds: float) -> None:
    """The times of all commands."""
    demo.title("The figures")
    for line, took in demo.took:
        print(f"  {took:6.2f} s  kops {line}")
    for fact in demo.facts:
        print(f"            {fact}")
    print(f"  {seconds:6.2f} s  in all; every exit code and every fact above was checked")


if __name__ == "__main__":
    sys.exit(main())
