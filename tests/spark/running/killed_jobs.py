"""The driver program of `test_standalone`: runs `kops scan` commands in one session on a cluster, whose executors are killed meanwhile.

`python -m tests.spark.running.killed_jobs MASTER FOLDER MEMORY`. FOLDER/commands.json has the commands: a name, whether an executor is
killed, and the words. FOLDER/NAME.out gets what a command prints, FOLDER/NAME.code its exit code.
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
import os, signal

folder = os.environ["KOPS_TEST_KILLS"]
try:
    from kops.spark.stores import reading
except ImportError:
    reading = None  # another interpreter of the executor
seen = {}


def killing(*values):
    \"\"\"The third time in a process, end its executor: the first executor of each job that comes so far.\"\"\"
    with open(os.path.join(folder, "job")) as file:
        job = file.read()
    seen[job] = seen.get(job, 0) + 1
    if job and seen[job] == 3:
        try:
            os.close(os.open(os.path.join(folder, f"{job}.killed"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return task_files(*values)
        with open(f"/proc/{os.getppid()}/stat") as file:
            executor = int(file.read().rpartition(")")[2].split()[1])
        os.kill(executor, signal.SIGKILL)
        os.kill(os.getpid(), signal.SIGKILL)
    return task_files(*values)


if reading is not None:
    task_files, reading.task_files = reading.task_files, killing
"""
"""`sitecustomize.py` of the executors' workers. A worker's parent is Spark's daemon, whose parent is the executor."""


def run(master: str, folder: Path, memory: str) -> None:
    """Run the commands one after the other."""
    settings = {
        "spark.executor.memory": memory,
        "spark.sql.shuffle.partitions": "4",
        "spark.executorEnv.PYTHONPATH": str(folder / "killer"),
        "spark.executorEnv.KOPS_TEST_KILLS": str(folder),
    }
    spark = spark_session(master, "killed", settings, light=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OnSpark, "start", lambda *_, **__: lambda: spark)
        patch.setattr(_Run, "_stop", lambda _: None)
        for name, is_killed, words in json.loads((folder / "commands.json").read_bytes()):
            (folder / "job").write_text(name if is_killed else "")
            code = main(["scan", *words, "-o", str(folder / f"{name}.out")])
            (folder / f"{name}.code").write_text(str(code))
    spark.stop()


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
