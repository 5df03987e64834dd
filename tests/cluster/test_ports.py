"""Ports: whether they are free, which process has them, and finding free ones."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kops.cluster.layout import ports
from kops.errors import KopsError, UsageError


@pytest.fixture
def taken() -> Iterator[int]:
    """A port on which somebody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


def test_free_and_taken(taken: int) -> None:
    assert not ports.is_free(taken)
    free = ports.free_ports(3)
    assert len(set(free)) == 3
    assert all(map(ports.is_free, free))


def test_no_outgoing_connection_gets_a_port_of_a_broker() -> None:
    lasting = ports.lasting_ports()
    assert lasting
    assert lasting.start > 1024
    assert set(ports.free_ports(20)) <= set(lasting)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        for _ in range(100):
            with socket.create_connection(sock.getsockname()) as outgoing:
                assert outgoing.getsockname()[1] not in lasting


def test_where_all_ports_are_for_outgoing_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "lasting_ports", lambda: range(0))
    assert len(set(ports.free_ports(3))) == 3


def test_a_taken_port_is_named_with_its_process(taken: int) -> None:
    with pytest.raises(KopsError, match=rf"port {taken} is taken by process {os.getpid()} \(.+\); choose another"):
        ports.check_free([("127.0.0.1", ports.free_ports(1)[0]), ("127.0.0.1", taken)], advice="choose another")


def test_a_run_of_free_ports_is_found() -> None:
    base = ports.find_base(3)
    assert (base - 9092) % 1000 == 0
    assert all(map(ports.is_free, ports.ports_above(base, 3)))
    assert ports.find_base(3, avoid=[base + 101]) > base
    with pytest.raises(KopsError, match="no 3 free ports"):
        ports.find_base(3, avoid=range(65_536))


def test_one_at_a_time_chooses_ports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    entered = threading.Event()

    def choose() -> None:
        with ports.choosing():
            entered.set()

    other = threading.Thread(target=choose)
    with ports.choosing():
        other.start()
        assert not entered.wait(0.05)
    other.join()
    assert entered.is_set()


def test_ports_are_chosen_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "missing"))
    with ports.choosing(), ports.choosing():
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("base", [0, -1, 65_434])
def test_ports_that_do_not_fit(base: int) -> None:
    with pytest.raises(UsageError, match="allowed are 1 to 65433 for 3 brokers"):
        ports.check_base(base, 3)
