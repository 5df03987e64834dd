"""`make bench` (`python -m tests.bench [--size MIB] [--rounds N] [--json FILE] [NAME…]`): kops and Kafka's own tools on the same files.

Each block answers one question. It shows CPU seconds and wall time (medians, with the start of the process), the peak memory, how many
times more the last line of the block takes, and the goal. Contenders run one after the other, round by round. A busy machine slows all of
them, so look at the ratios. `tests.bench.cluster` measures clusters. `--quick` leaves out the questions that take Kafka's tool a long time.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import kops as kops_package
from tests.bench import data, forensics
from tests.bench.measure import ENVIRONMENT, Contender, Figure, compare, dump_log_segments

PURE = {"KOPS_PURE": "1"}
DUMP_LOG_S = 1.69
"""CPU seconds of kafka-dump-log for a GiB on the machine for which the goals were set."""
Bench = Callable[[int, int], list[Figure]]


def kops(name: str, *arguments: str, pure: bool = False, allowed: tuple[int, ...] = (0,), target: str = "") -> Contender:
    """Return a contender that runs the kops of this environment."""
    program = Path(sys.executable).with_name("kops")
    return Contender(name, [str(program), *arguments], PURE if pure else {}, allowed, target)


def verify_crc(size: int, rounds: int, kind: str = "plain") -> list[Figure]:
    """Every checksum: `verify --level crc` against the dump without flags."""
    log = str(data.segment(kind, size))
    flags = ("log", "verify", "-q", log)
    ours = kops("kops (2 processes)", *flags, target=">=5x CPU, >=3.5x wall"), kops("kops --jobs 1", *flags, "--jobs", "1")
    return compare([*ours, dump_log_segments("--files", log)], rounds)


def verify_crc_lz4(size: int, rounds: int) -> list[Figure]:
    """The same on 1 KiB records in lz4."""
    return verify_crc(size, rounds, "lz4")


def verify_deep(size: int, rounds: int, kind: str = "plain") -> list[Figure]:
    """Every record parsed: `verify --level deep` against `--deep-iteration`."""
    log = str(data.segment(kind, size))
    deep = ("log", "verify", "-q", "--level", "deep", "--jobs", "1", log)
    asked = (">=20x CPU", ">=1.5x CPU") if kind == "plain" else ("", "")
    ours = kops("kops", *deep, target=asked[0]), kops("kops interpreted", *deep, pure=True, target=asked[1])
    return compare([*ours, dump_log_segments("--files", log, "--deep-iteration")], rounds)


def verify_deep_lz4(size: int, rounds: int) -> list[Figure]:
    """The same on 1 KiB records in lz4."""
    return verify_deep(size, rounds, "lz4")


def dump(size: int, rounds: int, kind: str = "plain") -> list[Figure]:
    """The same text as Kafka's tool: `dump --format kafka --deep-iteration --print-data-log`."""
    log = str(data.segment(kind, size))
    flags = ("log", "dump", "--format", "kafka", "--deep-iteration", "--print-data-log", "--files", log)
    ours = kops("kops", *flags, target=">=2x CPU"), kops("kops interpreted", *flags, pure=True, target=">=1.2x CPU")
    return compare([*ours, dump_log_segments("--files", log, "--deep-iteration", "--print-data-log")], rounds)


def dump_lz4(size: int, rounds: int) -> list[Figure]:
    """The same on 1 KiB records in lz4."""
    return dump(size, rounds, "lz4")


def index_rebuild(size: int, rounds: int) -> list[Figure]:
    """Offset and time index rebuilt from the log (`-n --all`: everything except the writing)."""
    log = data.segment("plain", size)
    asked = f"<={size / data.GIB:.2f} s CPU"
    return compare([kops("kops", "log", "index", "rebuild", "-n", "--all", str(log.parent), allowed=(0, 1, 4), target=asked)], rounds)


def timeindex(size: int, rounds: int) -> list[Figure]:
    """The check of a time index against the dump of the `.timeindex`, whose work grows with the square of the size (here a sixteenth)."""
    index = str(data.segment("plain", max(size >> 4, 1 << 20)).with_suffix(".timeindex"))
    ours = kops("kops", "log", "index", "check", index, target=">=500x CPU at 1 GiB (--size 16384)")
    return compare([ours, dump_log_segments("--files", index)], 1)


def jobs(size: int, rounds: int, level: str = "deep", pure: bool = True) -> list[Figure]:
    """Several files on several cores: four segments, level deep, interpreted, with two processes and with one."""
    logs = [str(data.segment("plain", size // 4, base_offset=number * 10_000_000)) for number in range(4)]
    flags = ("log", "verify", "-q", "--level", level)
    two = kops("--jobs 2", *flags, "--jobs", "2", *logs, pure=pure, target=">=1.7x wall")
    return compare([two, kops("--jobs 1", *flags, "--jobs", "1", *logs, pure=pure)], rounds)


def small(size: int, rounds: int) -> list[Figure]:
    """Commands that must be instant: `--help`, and `verify` of a tiny segment."""
    tiny = str(data.segment("plain", 1 << 16))
    help_ = kops("kops --help", "--help", target="<=0.10 s CPU")
    check = kops("kops log verify (64 KiB)", "log", "verify", "-q", tiny, target="<=0.20 s CPU")
    return compare([help_, check, dump_log_segments("--files", tiny)], max(rounds, 5))


def memory(size: int, rounds: int) -> list[Figure]:
    """The peak memory of everything else that reads a segment (one run each, <=150 MiB)."""
    log = data.segment("plain", size)
    folder, out = str(log.parent), str(data.CACHE / "recovered")
    each = [
        kops("dump --format jsonl (1/8)", "log", "dump", "--format", "jsonl", "--print-data-log", str(data.segment("plain", size >> 3))),
        kops("ls", "log", "ls", folder),
        kops("verify --level full", "log", "verify", "--level", "full", "--jobs", "1", folder, allowed=(0, 4)),
        kops("index check", "log", "index", "check", folder, allowed=(0, 4)),
        kops("forecast", "log", "forecast", folder, allowed=(0, 1, 4, 5)),
        kops("repair -n", "log", "repair", "-n", folder, allowed=(0, 1, 4)),
        kops("recover", "log", "recover", folder, "--out", out, allowed=(0, 1, 4)),
    ]
    figures = []
    for contender in each:
        subprocess.run(["rm", "-rf", out], check=True)
        contender.target = "<=150 MiB"
        figures += compare([contender], 1)
    subprocess.run(["rm", "-rf", out], check=True)
    return figures


def _spark(question: str, log: str, master: str, rounds: int) -> list[Figure]:
    command = [sys.executable, "-m", "tests.bench.spark", question, log, master, str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=ENVIRONMENT, text=True)
    return [Figure(name, cpu, wall, 0) for name, cpu, wall in json.loads(done.stdout.splitlines()[-1])]


def spark_verify(size: int, rounds: int) -> list[Figure]:
    """`kops scan verify` and `kops log verify` of four segments, warm, without the start of the session. CPU includes JVM and workers."""
    figures = _spark("verify", str(data.linked("plain", size, 4) / "bench-0" / f"{0:020d}.log"), "local[1]", rounds)
    figures[0].target = ">=0.7x CPU"
    return figures


def spark_verify_deep(size: int, rounds: int) -> list[Figure]:
    """The same at level deep."""
    figures = _spark("deep", str(data.linked("plain", size, 4) / "bench-0" / f"{0:020d}.log"), "local[1]", rounds)
    figures[0].target = ">=0.75x CPU"
    return figures


def spark_recover(size: int, rounds: int) -> list[Figure]:
    """`kops scan recover` and `kops log recover` of four segments, warm, written to disk. CPU includes JVM and workers."""
    figures = _spark("recover", str(data.linked("plain", size, 4) / "bench-0" / f"{0:020d}.log"), "local[1]", rounds)
    figures[0].target = ">=0.6x CPU"
    return figures


def spark_carve(size: int, rounds: int) -> list[Figure]:
    """`kops scan carve` and `kops log carve` of an image that is a log, warm, written to disk. CPU includes JVM and workers."""
    return _spark("carve", str(data.segment("plain", size)), "local[1]", rounds)


def spark_tasks(size: int, rounds: int) -> list[Figure]:
    """`kops scan verify` of 256 segments of 64 KiB, in as many tasks and in one: the cost of a task and of a segment."""
    figures = _spark("tasks", str(data.linked("plain", 1 << 16, 256) / "bench-0" / f"{0:020d}.log"), "local[1]", max(rounds, 3))
    figures[0].target = f"{(figures[0].cpu_s - figures[1].cpu_s) / 255 * 1000:.1f} ms CPU a task"
    figures[1].target = f"{figures[1].cpu_s / 256 * 1000:.1f} ms CPU a segment"
    return figures


def spark_slope(size: int, rounds: int) -> list[Figure]:
    """`kops scan verify` of 1 to 16 segments: the cost is linear in the bytes, beyond what a scan costs at all.

    Fits `fixed + each x segments` by the least squares of the relative distances.
    """
    figures = _spark("slope", str(data.segment("plain", size)), "local[1]", rounds)
    fixed, each = fit([int(figure.name.split()[0]) for figure in figures], [figure.cpu_s for figure in figures])
    for figure in figures:
        line = fixed + each * int(figure.name.split()[0])
        figure.target = f"the line: {line:.2f} s ({figure.cpu_s / line - 1:+.1%})"
    figures[0].target += f"; {fixed:.2f} s + {each:.3f} s a segment; asked: within 10 %"
    return figures


def fit(counts: list[int], costs: list[float]) -> tuple[float, float]:
    """Return the line `first + second x count` with the least squares of the distances, each relative to the cost."""
    weights = [1 / cost**2 for cost in costs]
    total = sum(weights)
    x = sum(weight * count for weight, count in zip(weights, counts, strict=True)) / total
    y = sum(weight * cost for weight, cost in zip(weights, costs, strict=True)) / total
    above = sum(weight * (count - x) * (cost - y) for weight, count, cost in zip(weights, counts, costs, strict=True))
    below = sum(weight * (count - x) ** 2 for weight, count in zip(weights, counts, strict=True))
    return y - above / below * x, above / below


def spark_records(size: int, rounds: int) -> list[Figure]:
    """Rows of records of four segments through Spark, and the same Arrow batches without it, warm. CPU includes JVM and workers.

    Kafka's tool on one of the segments shows how fast the machine is. The goal of 3 s is for a machine where the tool takes 1.69 s.
    """
    folder = data.linked("plain", size, 4)
    figures = _spark("records", str(folder / "bench-0" / f"{0:020d}.log"), "local[1]", rounds)
    over = (figures[0].cpu_s - figures[1].cpu_s) / (sum(log.stat().st_size for log in folder.glob("*/*.log")) / 1e9)
    scaled = over * DUMP_LOG_S / (figures[2].cpu_s * data.GIB / size)
    figures[0].target = f"{over:.1f} s CPU a GB above, {scaled:.1f} on the machine of the figures; asked <=3"
    return figures


def spark_connector(size: int, rounds: int) -> list[Figure]:
    """Records of a topic of a real broker: the broker's files by kops, and Spark's own Kafka connector. CPU without the broker's."""
    command = [sys.executable, "-m", "tests.bench.connector", str(size >> 20), "local[1]", str(rounds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True, env=ENVIRONMENT, text=True)
    figures = []
    for name, cpu, wall, of_broker, count in json.loads(done.stdout.splitlines()[-1]):
        figures.append(Figure(name, cpu, wall, 0, f"{count / cpu:,.0f} records a CPU s; the broker {of_broker:.2f} s"))
    figures[0].target += "; >=2x CPU"
    return figures


def spark_cores(size: int, rounds: int) -> list[Figure]:
    """`kops scan verify --level deep` of four segments on two cores and on one."""
    log = str(data.linked("plain", size, 4) / "bench-0" / f"{0:020d}.log")
    two, one = (_spark("deep", log, master, rounds)[0] for master in ("local[2]", "local[1]"))
    two.target = ">=1.7x wall"
    return [two, one]


def compact(size: int, rounds: int, kind: str = "plain") -> list[Figure]:
    """A round of log compaction by kops and by Kafka's Cleaner in a warm JVM, without process starts (here a sixteenth of the size)."""
    command = [sys.executable, "-m", "tests.bench.compact", kind, str(max(size >> 4, 4 << 20)), str(max(rounds, 5))]
    pure = {**ENVIRONMENT, **PURE}
    runs = [subprocess.run(command, capture_output=True, check=True, env=each, text=True) for each in (pure, ENVIRONMENT)]
    interpreted, compiled = (json.loads(done.stdout.splitlines()[-1]) for done in runs)
    figures = [Figure(name, cpu, wall, 0) for name, cpu, wall in (compiled[0], interpreted[0], compiled[1])]
    figures[0].target = ">=0.5x CPU"
    return figures


def compact_lz4(size: int, rounds: int) -> list[Figure]:
    """The same on 1 KB values in lz4."""
    return compact(size, rounds, "lz4")


def engine(question: str, kind: str, amount: int, rounds: int, *, pure: bool = False) -> list[Figure]:
    """Run a question of `tests.bench.log_engine` in a process of its own. The spread is shown in place of the target."""
    command = [sys.executable, "-m", "tests.bench.log_engine", question, kind, str(amount), str(rounds)]
    done = subprocess.run(command, capture_output=True, check=True, env={**ENVIRONMENT, **(PURE if pure else {})}, text=True)
    return [Figure(name, cpu, wall, 0, note) for name, cpu, wall, note in json.loads(done.stdout.splitlines()[-1])]


def log_append(size: int, rounds: int, kind: str = "plain") -> list[Figure]:
    """Millions of appends as leader (so seconds are microseconds per append) of 16 KiB of 100 B records: medians of many turns."""
    compiled, interpreted = (engine("leader", kind, 0, max(rounds, 25), pure=pure) for pure in (False, True))
    compiled[0].target += " us; >=0.7x CPU"
    interpreted[0].target += " us; >=0.12x CPU"
    return [compiled[0], interpreted[0], compiled[1]]


def log_append_lz4(size: int, rounds: int) -> list[Figure]:
    """The same records in lz4."""
    return log_append(size, rounds, "lz4")


def log_follow(size: int, rounds: int, fetched: int = 1) -> list[Figure]:
    """The same as follower."""
    ours, theirs = engine("follower", "plain", fetched, max(rounds, 25))
    ours.target += " us; >=1x CPU"
    return [ours, theirs]


def log_follow_many(size: int, rounds: int) -> list[Figure]:
    """The same as follower, 16 batches per append (a fetch of 256 KiB). Times are microseconds per batch."""
    return log_follow(size, rounds, 16)


def log_follow_full(size: int, rounds: int) -> list[Figure]:
    """The same as follower, 64 batches per append (a fetch of 1 MiB, the default maximum). Times are microseconds per batch."""
    return log_follow(size, rounds, 64)


def log_recover(size: int, rounds: int) -> list[Figure]:
    """A segment is opened after a kill."""
    ours, theirs = engine("recover", "plain", size, max(rounds, 5))
    ours.target += "; >=1x CPU"
    return [ours, theirs]


def log_open(size: int, rounds: int) -> list[Figure]:
    """A log manager starts on 1,000 partitions."""
    clean, killed = engine("open", "plain", 1000, max(rounds, 3))
    clean.target += "; <=1 s"
    return [clean, killed]


def log_memory(size: int, rounds: int) -> list[Figure]:
    """Anonymous memory (MiB in place of seconds) after a quarter of the appends and after all of them, which are four times the size."""
    return engine("memory", "plain", 4 * size, 1)


BENCHES: dict[str, tuple[Bench, bool]] = {
    "small": (small, False),
    "verify-crc": (verify_crc, False),
    "verify-crc-lz4": (verify_crc_lz4, False),
    "verify-deep": (verify_deep, True),
    "verify-deep-lz4": (verify_deep_lz4, False),
    "dump": (dump, True),
    "dump-lz4": (dump_lz4, True),
    "index-rebuild": (index_rebuild, False),
    "jobs": (jobs, False),
    "timeindex": (timeindex, False),
    "log-append": (log_append, False),
    "log-append-lz4": (log_append_lz4, False),
    "log-follow": (log_follow, False),
    "log-follow-many": (log_follow_many, False),
    "log-follow-full": (log_follow_full, False),
    "log-recover": (log_recover, False),
    "log-open": (log_open, False),
    "log-memory": (log_memory, False),
    "compact": (compact, False),
    "compact-lz4": (compact_lz4, False),
    "memory": (memory, True),
    "carve": (forensics.carve, False),
    "heal-plan": (forensics.heal_plan, False),
    "diff": (forensics.diff, False),
    "spark-verify": (spark_verify, False),
    "spark-verify-deep": (spark_verify_deep, False),
    "spark-recover": (spark_recover, False),
    "spark-carve": (spark_carve, False),
    "spark-tasks": (spark_tasks, False),
    "spark-slope": (spark_slope, False),
    "spark-records": (spark_records, False),
    "spark-connector": (spark_connector, False),
    "spark-cores": (spark_cores, False),
}


def show(name: str, figures: list[Figure]) -> None:
    """Print a block of lines. The ratios are the figures of the last line divided by those of each line."""
    last = figures[-1]
    print(f"\n{name}")
    for each in figures:
        ratio = ""
        if each is not last and not name.startswith("memory"):
            ratio = f"{last.cpu_s / max(each.cpu_s, 1e-3):7.1f}x CPU {last.wall_s / each.wall_s:6.1f}x wall"
        peak = f"{each.rss_mib:5.0f} MiB" if each.rss_mib else " " * 9
        line = f"  {each.name:26s} {each.cpu_s:8.2f} s CPU {each.wall_s:8.2f} s wall {peak} {ratio:27s} {each.target}"
        print(line.rstrip(), flush=True)


def main() -> None:
    """Parse the arguments and run the benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(BENCHES)} (default: all)")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="size of a segment (default 1024)")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--json", metavar="FILE", help="the figures as JSON, too")
    parser.add_argument("--quick", action="store_true", help="without what takes Kafka's tool long")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHES]
    if unknown:
        parser.error(f"no such benchmark: {', '.join(unknown)}")
    # Compile the modules, as an install does. A checkout under PYTHONDONTWRITEBYTECODE would compile its sources at every start.
    compileall.compile_dir(Path(kops_package.__file__).parent, quiet=1)
    print(f"{time.strftime('%Y-%m-%d %H:%M')}, {platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} cores, ", end="")
    print(f"load {os.getloadavg()[0]:.1f}; segments of {options.size} MiB, medians of {options.rounds}")
    found: dict[str, list[dict[str, object]]] = {}
    for name, (bench, slow) in BENCHES.items():
        if name in options.names or (not options.names and not (slow and options.quick)):
            figures = bench(options.size << 20, options.rounds)
            found[name] = [asdict(each) for each in figures]
            show(f"{name}: {(bench.__doc__ or '').splitlines()[0]}", figures)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
