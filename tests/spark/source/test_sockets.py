"""Spark's sockets get larger buffers if the machine allows it. The tests need no Spark."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from pyspark import TaskContext

from kops.spark.sockets import SEND_BUFFER, can_be_wide, widen
from kops.spark.source.data_source import KafkaLogReader, Task
from kops.spark.source.options import read_options

BUFFER = (socket.SOL_SOCKET, socket.SO_SNDBUF)


def given() -> int:
    """Return the size that Linux grants for SEND_BUFFER: twice that, or twice its limit."""
    return 2 * min(SEND_BUFFER, int(Path("/proc/sys/net/core/wmem_max").read_text()))


def test_unix_sockets_become_wide_and_others_stay() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs, socket.socket() as tcp, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams:
        for each in (ours, theirs):
            each.setsockopt(*BUFFER, 10_000)
        before = tcp.getsockopt(*BUFFER), datagrams.getsockopt(*BUFFER)
        narrow = ours.getsockopt(*BUFFER)
        widen("/no/such/directory")
        assert ours.getsockopt(*BUFFER) == narrow
        widen()
        assert ours.getsockopt(*BUFFER) == theirs.getsockopt(*BUFFER) == given()
        assert (tcp.getsockopt(*BUFFER), datagrams.getsockopt(*BUFFER)) == before
        ours.sendall(b"still open")
        assert theirs.recv(10) == b"still open"


@pytest.mark.parametrize(("content", "allowed"), [("4194304\n", True), ("2097152", True), ("212992\n", False), ("?", False), (None, False)])
def test_unix_sockets_are_taken_where_they_can_be_wide(content: str | None, allowed: bool, tmp_path: Path) -> None:
    limit = tmp_path / "wmem_max"
    if content is not None:
        limit.write_text(content)
    assert can_be_wide(str(limit)) is allowed


def test_a_task_widens_its_worker_s_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = KafkaLogReader(read_options({"path": "/nowhere"}), ("offset",))
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setsockopt(*BUFFER, 10_000)
        narrow = ours.getsockopt(*BUFFER)
        assert list(reader.read(Task())) == []
        assert ours.getsockopt(*BUFFER) == narrow, "no task, no worker"
        monkeypatch.setattr(TaskContext, "get", classmethod(lambda cls: object()))
        assert list(reader.read(Task())) == []
        assert ours.getsockopt(*BUFFER) == given()


@pytest.mark.slow
def test_a_program_that_does_not_stop_its_session_leaves_no_socket() -> None:
    """The folder has a short name, because the path of a Unix socket has at most 107 bytes."""
    program = (
        "import os, sys\n"
        "from kops.spark import register, spark_session\n"
        "spark = spark_session('local[1]', settings={'spark.python.unix.domain.socket.enabled': 'true',"
        " 'spark.python.unix.domain.socket.dir': sys.argv[1]})\n"
        "register(spark)\n"
        "print(len(os.listdir(sys.argv[1])) > 0, spark.range(3).count())\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        ran = subprocess.run([sys.executable, "-c", program, folder], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout) == (0, "True 3\n"), ran.stderr
        assert os.listdir(folder) == []
