"""The main job, shown: `make demo`. Real Kafka directories of three brokers are looked at, damaged (a copy), judged, saved and mended.

The directories are `cluster-4.3.0` of the golden corpus (`tests/golden/README.md`): Apache Kafka 4.3.0 wrote them. Every line that begins
with `$ kops` is really run, as a process of its own; its output is shown, long ones cut, and its exit code is checked: when anything is
not as it should be, the demo says so and ends with exit code 1.
"""

from __future__ import annotations

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(PROJECT))

from kops import forecast  # noqa: E402 - the project's folder has to be on the path first
from kops.cli import exit_codes  # noqa: E402
from kops.cli.failures import printable  # noqa: E402
from kops.files import OsFiles  # noqa: E402
from kops.records import Batch, scan  # noqa: E402
from tests.support import corpus  # noqa: E402

CASE = "cluster-4.3.0"
BROKERS = ("n1", "n2", "n3")
FLIPPED = "n1/orders-epochs-0/00000000000000000000.log"
BROKEN_INDEX = "n2/orders-epochs-0/00000000000000000000.index"
TORN = "n3/sensor.readings-multi-1/00000000000000000024.log"
WIDTH = 150


class Demo:
    """Runs commands, shows them, checks them, counts their time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.facts: list[str] = []
        self.took: list[tuple[str, float]] = []

    def title(self, text: str) -> None:
        """A heading."""
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}", flush=True)

    def note(self, text: str) -> None:
        """A sentence of the demo's own."""
        print(f"  {text}", flush=True)

    def kops(self, line: str, *, code: int, lines: int = 8, having: tuple[str, ...] = (), wrap: bool = False) -> None:
        """Run `kops <line>`; show at most so many lines, long ones cut (or wrapped). The exit code must be `code`, the output must hold
        every text of `having`."""
        print(f"$ kops {line}", flush=True)
        started = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "kops", *line.split()],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        took = time.monotonic() - started
        self.took.append((line, took))
        shown = [text for stream in (done.stdout, done.stderr) for text in stream.splitlines()]
        missing = [text for text in having if text not in done.stdout + done.stderr]
        failed = done.returncode != code or missing
        for text in shown if failed else shown[:lines]:
            print(fitted(text, wrap=wrap or bool(failed)))
        if len(shown) > lines and not failed:
            print(f"  … {len(shown) - lines} more lines")
        print(f"  exit code {done.returncode} ({meaning(done.returncode)}), {took:.2f} s\n", flush=True)
        if failed:
            wanted = f"exit code {code}" + "".join(f", {text!r} in the output" for text in missing)
            sys.exit(f"demo: kops {line}: expected {wanted}")

    def check(self, holds: bool, text: str) -> None:
        """Show a fact that the demo has checked itself; it must hold."""
        print(f"  {'✓' if holds else '✗'} {text}\n", flush=True)
        if not holds:
            sys.exit(f"demo: not so: {text}")


def fitted(text: str, *, wrap: bool) -> str:
    """A line of output as it is shown: indented, without control characters, cut or wrapped where it is long."""
    safe = printable(text)
    if wrap:
        return textwrap.fill(safe, WIDTH, initial_indent="  ", subsequent_indent=" " * 10, break_on_hyphens=False, drop_whitespace=False)
    return "  " + (safe if len(safe) <= WIDTH else safe[: WIDTH - 1] + "…")


def meaning(code: int) -> str:
    """The exit code in words."""
    parts = [words.split(":")[0].split(";")[0] for bit, words in exit_codes.SUM_MEANINGS if bit and code & bit]
    return " + ".join(parts) or "clean"


def damage(brokers: Path) -> tuple[Batch, list[str]]:
    """Damage three files of the copy; returns the batch that was hit and a sentence for each damage."""
    with OsFiles(read_only=True).open(str(brokers / FLIPPED)) as log:
        batches = [item for item in scan(log) if isinstance(item, Batch)]
    hit = batches[len(batches) // 3]
    position = hit.position + hit.size // 2
    with open(brokers / FLIPPED, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x10]))
    with open(brokers / BROKEN_INDEX, "r+b") as file:
        file.seek(8 * 4)
        file.write(b"\x7f\xff\xff\xff")
    size = os.path.getsize(brokers / TORN)
    os.truncate(brokers / TORN, size - 25)
    return hit, [
        f"a bit flipped at byte {position} of {FLIPPED}: in the batch of offsets {hit.base_offset} to {hit.last_offset}",
        f"an impossible offset in the fifth entry of {BROKEN_INDEX}",
        f"a torn tail: the last 25 of {size} bytes of {TORN} are missing",
    ]


def look(demo: Demo) -> None:
    """`ls` and `dump`."""
    demo.title("1. What three brokers of Apache Kafka 4.3.0 left on disk")
    demo.kops("log ls n1", code=0, lines=9)
    demo.kops(f"log dump --format kafka --print-data-log {FLIPPED}", code=0, lines=5, having=("Log starting offset: 0",))
    demo.kops("log verify --level full n1 n2 n3", code=0)


def judge(demo: Demo, hit: Batch) -> None:
    """`verify` and `forecast` on damaged directories."""
    demo.title("3. verify finds it (and Kafka's own tool would have ended with exit code 0)")
    demo.kops("log verify --level full n1 n2 n3", code=exit_codes.PROBLEMS, lines=12, wrap=True, having=("batch-crc-mismatch", "torn-tail"))
    demo.title("4. What a broker would do after a crash: throw away all that follows")
    demo.kops("log forecast --assume crash --recovery-point 0 n1/orders-epochs-0", code=exit_codes.PROBLEMS)
    [start] = forecast(demo.folder / "n1" / "orders-epochs-0", assume="crash", recovery_point=0).partitions
    [(first, last)] = start.lost
    demo.check(first == hit.base_offset, f"offsets {first} to {last} would be lost for {hit.last_offset - first + 1} damaged ones")
    demo.facts.append(f"a broker's start would have lost {last - first + 1} records; of them {last - hit.last_offset} are intact on disk")


def save(demo: Demo, hit: Batch) -> None:
    """`recover` to another place, and a look at what was saved."""
    demo.title("5. recover saves every intact batch, at its offset")
    demo.kops("log recover n1/orders-epochs-0 --out saved", code=exit_codes.LOST)
    kept = read_offsets(demo.folder / "saved" / "orders-epochs-0")
    all_offsets = read_offsets(demo.folder / "original" / "n1" / "orders-epochs-0")
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


def mend(demo: Demo) -> None:
    """`index rebuild`, `repair`, and a clean `verify`."""
    demo.title("6. index rebuild restores the index as the broker wrote it")
    demo.kops("log index rebuild --yes n2/orders-epochs-0", code=exit_codes.FIXED)
    same = filecmp.cmp(demo.folder / BROKEN_INDEX, demo.folder / "original" / BROKEN_INDEX, shallow=False)
    demo.check(same, f"{BROKEN_INDEX} is the original, byte for byte")
    demo.title("7. repair mends the directories in place, with a journal that can be rolled back")
    demo.kops("log repair -n n1/orders-epochs-0", code=exit_codes.PROBLEMS, lines=10)
    demo.kops("log repair -y n1/orders-epochs-0", code=exit_codes.FIXED, lines=10)
    demo.kops("log repair -y n3/sensor.readings-multi-1", code=exit_codes.FIXED)
    kept = read_offsets(demo.folder / "n1" / "orders-epochs-0")
    same = kept == read_offsets(demo.folder / "saved" / "orders-epochs-0")
    demo.check(same, f"the mended log holds the same {len(kept)} records, at their offsets")
    demo.title("8. verify is clean")
    demo.kops("log verify --level full n1 n2 n3", code=0)


def on_spark(demo: Demo) -> None:
    """The same on Spark."""
    demo.title("9. The same question over all three brokers, on Spark")
    demo.kops("scan verify --level full n1 n2 n3", code=0)


def main() -> int:
    """Run the demo."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keep", metavar="DIR", help="work in this folder and leave it")
    keep = parser.parse_args().keep
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="kops-demo-") as temporary:
        folder = Path(keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        case = corpus.load(CASE)
        case.copy(folder / "original", "nodes")
        for broker in BROKERS:
            shutil.copytree(folder / "original" / broker, folder / broker)
        demo = Demo(folder)
        look(demo)
        demo.title("2. A copy is damaged")
        hit, sentences = damage(folder)
        for sentence in sentences:
            demo.note(sentence)
        judge(demo, hit)
        save(demo, hit)
        mend(demo)
        on_spark(demo)
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
