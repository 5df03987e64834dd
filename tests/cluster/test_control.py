"""The connection to a supervisor: requests, errors, events, and callers that disconnect or send invalid data."""

from __future__ import annotations

import json
import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kops.broker.network.events.loop import Loop
from kops.cluster.processes.control import Caller, ControlClient, ControlServer, raise_error
from kops.errors import KopsError, NotFoundError, UnreachableError, UsageError


class Served:
    """A server whose loop turns when the test tells it to."""

    def __init__(self, path: Path) -> None:
        self.loop = Loop()
        self.asked: list[dict[str, Any]] = []
        self.callers: list[Caller] = []
        self.server = ControlServer(self.loop, str(path), self.on_request)

    def on_request(self, caller: Caller, request: dict[str, Any]) -> None:
        self.asked.append(request)
        self.callers.append(caller)
        if request["do"] == "fail":
            caller.fail({"usage": UsageError, "not-found": NotFoundError, "failed": KopsError}[request["how"]]("no"))
        elif request["do"] == "echo":
            caller.answer(ok=request["what"])

    def turn(self, count: int = 3) -> None:
        for _ in range(count):
            self.loop.run_once(50)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    made = Served(tmp_path / "control")
    yield made
    made.server.close()
    made.loop.close()
    assert not (tmp_path / "control").exists()


def connect(served: Served) -> socket.socket:
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.connect(served.server.path)
    sock.settimeout(60)
    served.turn()
    return sock


def test_requests_and_answers_are_lines(served: Served) -> None:
    with connect(served) as sock:
        sock.sendall(b'{"do": "echo", "what": 1}\n{"do": "ec')
        served.turn()
        assert json.loads(sock.recv(100)) == {"ok": 1}
        sock.sendall(b'ho", "what": "\xc3\xa9"}\n[1]\nno json\n')
        served.turn()
        lines = sock.recv(1000).splitlines()
    assert [json.loads(line) for line in lines] == [{"ok": "é"}, *[{"error": "a request is a JSON object", "kind": "usage"}] * 2]
    assert stat.S_IMODE(os.stat(served.server.path).st_mode) == 0o600


@pytest.mark.parametrize(("how", "kind"), [("usage", UsageError), ("not-found", NotFoundError), ("failed", KopsError)])
def test_errors_keep_their_kinds(served: Served, how: str, kind: type[KopsError]) -> None:
    with connect(served) as sock:
        sock.sendall(json.dumps({"do": "fail", "how": how}).encode() + b"\n")
        served.turn()
        answer = json.loads(sock.recv(1000))
    with pytest.raises(kind, match="no") as raised:
        raise_error(answer)
    assert type(raised.value) is kind


def test_callers_that_are_gone_or_endless_are_closed(served: Served) -> None:
    with connect(served) as sock:
        sock.sendall(b'{"do": "wait"}\n')
        served.turn()
    gone: list[bool] = []
    served.callers[0].on_gone = lambda: gone.append(True)
    served.turn()
    assert gone == [True]
    served.callers[0].answer(ok=1)
    with connect(served) as sock:
        sock.settimeout(0.2)
        with pytest.raises((BrokenPipeError, ConnectionResetError, TimeoutError)):
            while True:
                sock.send(b"x" * 65_536)
                served.turn(1)


def test_a_supervisor_that_does_not_answer_or_is_not_there(served: Served, tmp_path: Path) -> None:
    with ControlClient(served.server.path, timeout_s=60) as client, pytest.raises(UnreachableError, match=r"did not answer within 0\.05 s"):
        client.ask("echo", timeout_s=0.05, what=1)
    with pytest.raises(KopsError, match=r"the supervisor does not answer at .*nobody"):
        ControlClient(str(tmp_path / "nobody"), timeout_s=60)
    client = ControlClient(served.server.path, timeout_s=60)
    served.turn()
    served.server.close()
    with client, pytest.raises(KopsError, match="the supervisor has exited"):
        client.ask("echo", timeout_s=60, what=1)
