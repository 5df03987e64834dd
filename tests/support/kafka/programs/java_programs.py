"""Java programs as processes of their own: those that a test kills, or whose exit code shows how it went.

with JavaProgram(tmp_path, "org.apache.kafka.streams.examples.wordcount.WordCountDemo", properties, jars=(APPLICATIONS,)) as program:
    program.kill(); program.start()           # kill -9, and again with the same arguments
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from tests.support.kafka.kafka_jars import BROKER, KAFKA_VERSION, Jars
from tests.support.kafka.oracle import java_command

PATIENCE_S = 120


class JavaProgram:
    """A process that runs the main class `name` with its arguments. The output of all its runs goes to one file in `work`."""

    def __init__(
        self,
        work: Path,
        name: str,
        *arguments: object,
        version: str = KAFKA_VERSION,
        jars: Sequence[Jars] = (BROKER,),
        loggers: Mapping[str, str] | None = None,
    ) -> None:
        java = java_command(version, heap="256m", log_level="warn", loggers=loggers, jars=jars)
        self.command = [*java, name, *map(str, arguments)]
        self.work = work
        self.said = work / f"{name.rpartition('.')[2]}-{id(self)}.out"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it without waiting."""
        assert self.process is None, "it runs"
        with open(self.said, "ab") as output:
            self.process = subprocess.Popen(self.command, cwd=self.work, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
        return self

    def output(self) -> str:
        """Return what all its runs have printed."""
        return self.said.read_text(errors="replace")

    def until(self, holds: Callable[[], bool]) -> None:
        """Wait for a condition while it runs. Raises AssertionError with its last output if it ends before."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds():
            assert self.process is not None and self.process.poll() is None, self.output()[-3000:]
            assert time.monotonic() < deadline, self.output()[-3000:]
            time.sleep(0.05)

    def wait(self) -> int:
        """Wait for its end. Return its exit code."""
        assert self.process is not None, "it does not run"
        try:
            return self.process.wait(PATIENCE_S)
        finally:
            self.kill()

    def stop(self) -> int:
        """Ask it to end, and wait. Return its exit code."""
        assert self.process is not None, "it does not run"
        self.process.terminate()
        return self.wait()

    def kill(self) -> None:
        """Kill it with kill -9."""
        if self.process is not None:
            process, self.process = self.process, None
            process.kill()
            process.wait()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.kill()
