"""Shared by the tests of clients on sockets: what a client may not leave behind, and an address where nobody answers."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest


def held() -> tuple[int, int]:
    """Return the open selectors, and the threads of clients. The node in this process opens files, sockets and threads at any time."""
    names = []
    for fd in os.listdir("/proc/self/fd"):
        with suppress(FileNotFoundError):  # that of the listing itself
            names.append(os.readlink(f"/proc/self/fd/{fd}"))
    threads = sum(thread.name.startswith(("kops-producer", "kops-consumer")) for thread in threading.enumerate())
    return names.count("anon_inode:[eventpoll]"), threads


@pytest.fixture
def nothing_is_left() -> Iterator[None]:
    before = held()
    yield
    assert held() == before


@pytest.fixture
def nowhere() -> Iterator[str]:
    """Provide the address of a port that refuses connections."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{sock.getsockname()[1]}"
