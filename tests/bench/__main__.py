"""`make bench` (`python -m tests.bench [--size MIB] [--rounds N] [NAME…]`): kops and Kafka's own tools, interleaved, on the same files.

Each line is one question: CPU seconds and wall of kops (compiled and interpreted hot loop) and of Kafka's tool, process start included, and
how many times less kops takes. `--quick` leaves out what takes Kafka's tool minutes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from kops.environment import find_java
from tests.bench import data
from tests.bench.measure import Contender, Figure, compare
from tests.support.kafka_jars import kafka_jars

PURE = {"KOPS_PURE": "1"}
Bench = Callable[[int, int], list[Figure]]


def kops(name: str, *arguments: str, pure: bool = False, allowed: tuple[int, ...] = (0,)) -> Contender:
    """The kops of this environment."""
    program = Path(sys.executable).with_name("kops")
    return Contender(name, [str(program), *arguments], PURE if pure else {}, allowed)


def dump_log_segments(*arguments: str) -> Contender:
    """Kafka's own tool, with the heap that kafka-run-class.sh gives tools."""
    java = str(find_java().java)
    return Contender("kafka-dump-log", [java, "-Xmx256M", "-cp", f"{kafka_jars()}/*", "org.apache.kafka.tools.DumpLogSegments", *arguments])


def verify_crc(size: int, rounds: int, kind: str = "plain") -> list[Figure]:
    """Every checksum: `verify --level crc` against the dump without flags."""
    log = str(data.segment(kind, size))
    return compare([kops("kops", "log", "verify", "-q", log), dump_log_segments("--files", log)], rounds)


def verify_crc_lz4(size: int, rounds: int) -> list[Figure]:
    """The same on 1 KiB records in lz4."""
    return verify_crc(size, rounds, "lz4")


def verify_deep(size: int, rounds: int) -> list[Figure]:
    """Every record parsed: `verify --level deep` against `--deep-iteration`."""
    log = str(data.segment("plain", size))
    deep = ("log", "verify", "-q", "--level", "deep", log)
    theirs = dump_log_segments("--files", log, "--deep-iteration")
    return compare([kops("kops", *deep), kops("kops interpreted", *deep, pure=True), theirs], rounds)


def verify_deep_lz4(size: int, rounds: int) -> list[Figure]:
    """The same on 1 KiB records in lz4."""
    log = str(data.segment("lz4", size))
    deep = ("log", "verify", "-q", "--level", "deep", log)
    theirs = dump_log_segments("--files", log, "--deep-iteration")
    return compare([kops("kops", *deep), kops("kops interpreted", *deep, pure=True), theirs], rounds)


def dump(size: int, rounds: int) -> list[Figure]:
    """The same text: `dump --format kafka --print-data-log`."""
    log = str(data.segment("plain", size))
    flags = ("log", "dump", "--format", "kafka", "--deep-iteration", "--print-data-log", "--files", log)
    theirs = dump_log_segments("--files", log, "--deep-iteration", "--print-data-log")
    return compare([kops("kops", *flags), kops("kops interpreted", *flags, pure=True), theirs], rounds)


def index_rebuild(size: int, rounds: int) -> list[Figure]:
    """Offset and time index made again from the log (`-n --all`: everything but the writing)."""
    log = data.segment("plain", size)
    return compare([kops("kops", "log", "index", "rebuild", "-n", "--all", str(log.parent), allowed=(0, 1, 4))], rounds)


def timeindex(size: int, rounds: int) -> list[Figure]:
    """The check of a time index: `index check` against the dump of the `.timeindex`, whose work grows with the square."""
    index = str(data.segment("plain", size).with_suffix(".timeindex"))
    return compare([kops("kops", "log", "index", "check", index), dump_log_segments("--files", index)], min(rounds, 1))


def jobs(size: int, rounds: int) -> list[Figure]:
    """Several files on several cores: four segments with one job and with two."""
    logs = [str(data.segment("plain", size // 4, base_offset=number * 10_000_000)) for number in range(4)]
    flags = ("log", "verify", "-q", "--level", "deep")
    return compare(
        [kops("2 jobs", *flags, "--jobs", "2", *logs, pure=True), kops("1 job", *flags, "--jobs", "1", *logs, pure=True)], rounds
    )


def small(size: int, rounds: int) -> list[Figure]:
    """What has to be instant: `--help`, and `verify` of a tiny segment."""
    tiny = str(data.segment("plain", 1 << 16))
    help_, check = kops("kops --help", "--help"), kops("kops log verify (64 KiB)", "log", "verify", "-q", tiny)
    return compare([help_, check, dump_log_segments("--files", tiny)], max(rounds, 5))


BENCHES: dict[str, tuple[Bench, bool]] = {
    "small": (small, False),
    "verify-crc": (verify_crc, False),
    "verify-crc-lz4": (verify_crc_lz4, False),
    "verify-deep": (verify_deep, False),
    "verify-deep-lz4": (verify_deep_lz4, False),
    "dump": (dump, True),
    "index-rebuild": (index_rebuild, False),
    "jobs": (jobs, False),
    "timeindex": (timeindex, True),
}


def show(name: str, figures: list[Figure]) -> None:
    """One block of lines; ratios are the last one's figures over each one's."""
    last = figures[-1]
    print(f"\n{name}")
    for each in figures:
        ratio = "" if each is last else f"   {last.cpu_s / each.cpu_s:7.1f}x CPU {last.wall_s / each.wall_s:6.1f}x wall"
        print(f"  {each.name:26s} {each.cpu_s:8.2f} s CPU {each.wall_s:8.2f} s wall {each.rss_mib:7.0f} MiB{ratio}", flush=True)


def main() -> None:
    """Parse the arguments, run the benches."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="size of a segment (default 1024)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="without what takes Kafka's tool minutes")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    for name, (bench, slow) in BENCHES.items():
        if name in options.names or (not options.names and not (slow and options.quick)):
            show(f"{name}: {(bench.__doc__ or '').splitlines()[0]}", bench(options.size << 20, options.rounds))


if __name__ == "__main__":
    main()
