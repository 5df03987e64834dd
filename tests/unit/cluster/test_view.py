"""The description of a cluster whose supervisor is about to end."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kops.cluster import view
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.processes.processes import identify
from kops.errors import KopsError
from tests.unit.cluster.test_directory import make

TOKEN = "fedcba9876543210"


@pytest.fixture
def supervisor(tmp_path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Provide a process that counts as the supervisor of the cluster in `tmp_path/c`. Nobody listens on its socket."""
    directory = make(tmp_path / "c", 1)
    program = "import sys; print('there', flush=True); sys.stdin.read()"
    process = subprocess.Popen([sys.executable, "-c", program, TOKEN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"there\n"
    identity = identify(process.pid, TOKEN)
    assert identity is not None
    directory.write_state(directory.supervisor_path, {**identity.document(), "socket": str(tmp_path / "nobody")})
    yield process
    process.kill()
    process.communicate()


def test_a_supervisor_that_ends_is_waited_for(supervisor: subprocess.Popen[bytes], tmp_path: Path) -> None:
    ending = threading.Timer(0.3, supervisor.kill)
    ending.start()
    found = view.describe(ClusterDirectory(str(tmp_path / "c")))
    assert (found["state"], found["supervisor"], [broker["state"] for broker in found["brokers"]]) == ("down", None, ["stopped"])
    ending.join()


@pytest.mark.usefixtures("supervisor")
def test_one_that_runs_and_does_not_answer_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(view, "_ENDS_WITHIN_S", 0.2)
    with pytest.raises(KopsError, match=r"the supervisor does not answer at .*nobody: No such file"):
        view.describe(ClusterDirectory(str(tmp_path / "c")))
