"""The driver program of `test_standalone`: runs `kops scan` commands in one session on a cluster that has executors killed, or runs slow
tasks twice.

`python -m tests.spark.running.killed_jobs MASTER FOLDER MEMORY`. FOLDER/commands.json has the commands: a name, what happens (`kill`,
`slow`, or nothing), and the words. FOLDER/NAME.out gets what a command prints, FOLDER/NAME.code its exit code.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from kops.cli.commands.scan.running import OnSpark
from kops.cli.main import main
from kops.spark import spark_session
from kops.spark.interrupt import _Run

KILLER = """
import os, signal, time

folder = os.environ["KOPS_TEST_KILLS"]
try:
    from kops.forensics.recover import task
    from kops.spark.stores import reading
    from pyspark import TaskContext
except ImportError:
    reading = None  # another interpreter of the executor
seen = {}


def event():
    \"\"\"The name of the job, and what happens in it.\"\"\"
    with open(os.path.join(folder, "job")) as file:
        return file.read().split()


def is_first(name, text=""):
    \"\"\"Whether this process is the one that makes the file.\"\"\"
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
    except FileExistsError:
        return False
    os.write(descriptor, text.encode())
    os.close(descriptor)
    return True


def killing(*values):
    \"\"\"The third time in a process, end its executor: the first executor of each job that comes so far.\"\"\"
    job, kind = event()
    seen[job] = seen.get(job, 0) + 1
    if kind == "kill" and seen[job] == 3 and is_first(job + ".killed"):
        with open(f"/proc/{os.getppid()}/stat") as file:
            executor = int(file.read().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return task_files(*values)


def stalling(*values):
    \"\"\"Do not end the first attempt that has written something. Spark runs its task again, on the other worker, and kills this one.

    The other attempt waits until this one is here, so that both have written the same.
    \"\"\"
    job, kind = event()
    if kind == "slow":
        context = TaskContext.get()
        own = f"{context.stageId()}.{context.partitionId()}"
        if is_first(job + ".slow", own):
            is_first(job + ".waits")
            time.sleep(600)
        with open(os.path.join(folder, job + ".slow")) as file:
            if file.read() == own and context.attemptNumber() > 0:
                deadline = time.monotonic() + 60
                while not os.path.exists(os.path.join(folder, job + ".waits")) and time.monotonic() < deadline:
                    time.sleep(0.05)
                is_first(job + ".twice")
    return put_in_place(*values)


if reading is not None:
    task_files, reading.task_files = reading.task_files, killing
    put_in_place, task.put_in_place = task.put_in_place, stalling
"""
"""`sitecustomize.py` of the executors' workers. A worker's parent is Spark's daemon, whose parent is the executor."""
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.1",
    "spark.speculation.multiplier": "1.5",
}
"""A task that takes longer than others is soon run twice. Spark does so only on another host."""


def run(master: str, folder: Path, memory: str) -> None:
    """Run the commands one after the other."""
    settings = {
        **SPECULATION,
        "spark.executor.memory": memory,
        "spark.sql.shuffle.partitions": "4",
        "spark.executorEnv.PYTHONPATH": str(folder / "killer"),
        "spark.executorEnv.KOPS_TEST_KILLS": str(folder),
    }
    spark = spark_session(master, "killed", settings, light=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnSpark, "start", lambda *_, **__: lambda: spark)
        patch.setattr(_Run, "_stop", lambda _: None)
        for name, kind, words in json.loads((folder / "commands.json").read_bytes()):
            (folder / "job").write_text(f"{name} {kind or 'none'}")
            code = main(["scan", *words, "-o", str(folder / f"{name}.out")])
            (folder / f"{name}.code").write_text(str(code))
    spark.stop()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
