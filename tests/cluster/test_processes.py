"""Identification of the processes that belong to kops."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kops.cluster import launch
from kops.cluster.launch import clean_up, locate, orphans, running_directories, stop_supervisor, supervision
from kops.cluster.layout.directory import ClusterDirectory
from kops.cluster.processes.processes import MARK, ProcessIdentity, identify, identity_of, start_time, supervised
from kops.errors import NotFoundError

TOKEN = "0123456789abcdef"
Sleeper = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def sleeper() -> Iterator[Sleeper]:
    """A function that starts waiting processes with these words in their command lines."""
    started: list[subprocess.Popen[bytes]] = []

    def start(*words: str) -> subprocess.Popen[bytes]:
        program = "import sys; print('there', flush=True); sys.stdin.read()"
        process = subprocess.Popen([sys.executable, "-c", program, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_an_identity_is_id_start_time_and_token(sleeper: Sleeper) -> None:
    process = sleeper(MARK, TOKEN, "/d")
    identity = identify(process.pid, TOKEN)
    assert identity is not None
    assert identity_of(identity.document()) == identity
    assert identity.is_alive
    assert not ProcessIdentity(process.pid, identity.started, "another").is_alive
    assert not ProcessIdentity(process.pid, "1", TOKEN).is_alive
    assert not ProcessIdentity(process.pid, "1", TOKEN).signal(signal.SIGKILL)
    assert (process.pid, f"{MARK} {TOKEN} /d") in [(pid, line[line.index(MARK) :]) for pid, line in supervised()]
    assert identity.signal(signal.SIGKILL)
    assert identity.wait(60)
    # The process has ended, but nobody has waited for it. So its id is still in use.
    assert not identity.is_alive
    assert start_time(process.pid) is None
    assert not identity.signal(signal.SIGTERM)


@pytest.mark.parametrize("document", [{}, {"pid": "1", "started": "1", "token": "x"}, {"pid": 1, "started": "1", "token": ""}])
def test_what_is_no_identity(document: dict[str, object]) -> None:
    assert identity_of(document) is None


def test_another_process_under_a_remembered_id_is_left_alone(directory: ClusterDirectory, sleeper: Sleeper) -> None:
    os.makedirs(directory.state_dir)
    directory.write_properties(1, {"process.roles": "broker"})
    foreign = sleeper("not", "ours")
    started = start_time(foreign.pid)
    assert started is not None
    for document in ({"pid": foreign.pid, "started": "1", "token": TOKEN}, {"pid": foreign.pid, "started": started, "token": TOKEN}):
        directory.write_state(directory.process_path(1), document)
        directory.write_state(directory.supervisor_path, {**document, "socket": os.path.join(directory.path, "notes")})
        assert supervision(directory) is None
        assert orphans(directory) == {}
        assert clean_up(directory, kill=True) == []
        assert foreign.poll() is None
        assert not os.path.exists(directory.process_path(1))


def test_brokers_of_a_killed_supervisor_are_found_and_stopped(directory: ClusterDirectory, sleeper: Sleeper) -> None:
    os.makedirs(directory.state_dir)
    directory.write_properties(1, {"process.roles": "broker"})
    broker = sleeper(MARK, TOKEN, directory.path)
    identity = identify(broker.pid, TOKEN)
    assert identity is not None
    directory.write_state(directory.process_path(1), identity.document())
    assert orphans(directory) == {1: identity}
    assert directory.path in running_directories()
    assert clean_up(directory) == [f"broker 1 of a killed supervisor (process {broker.pid}) was stopped"]
    assert broker.wait(60) == -signal.SIGTERM
    assert orphans(directory) == {}


def test_what_changes_a_cluster_means_the_one_that_is_named(
    directory: ClusterDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launch, "running_directories", lambda: {directory.path})
    assert locate(None, look_around=True).path == directory.path
    with pytest.raises(NotFoundError, match=f"running elsewhere, choose one with --data-dir: {re.escape(directory.path)}"):
        locate(None)


def test_a_supervisor_that_hangs_is_killed_with_its_brokers(directory: ClusterDirectory, sleeper: Sleeper) -> None:
    os.makedirs(directory.state_dir)
    directory.write_properties(1, {"process.roles": "broker"})
    started = {}
    for name in ("supervisor", "broker"):
        started[name] = sleeper(MARK, TOKEN, directory.path)
        identity = identify(started[name].pid, TOKEN)
        assert identity is not None
        path = directory.supervisor_path if name == "supervisor" else directory.process_path(1)
        directory.write_state(path, {**identity.document(), "socket": directory.socket_path})
    running = supervision(directory)
    assert running is not None
    assert stop_supervisor(running, kill=False) == []
    assert [process.wait(60) for process in started.values()] == [-signal.SIGKILL] * 2
    assert supervision(directory) is None
