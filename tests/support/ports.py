"""Ports for brokers of tests that run as processes of their own.

A broker binds its ports a second after they were chosen, and again after a restart. No other test that runs at the same time may get
them, and no outgoing connection: so a counter that all processes of the tests share gives out the ports that the system keeps for servers.
"""

from __future__ import annotations

import fcntl
import os
import tempfile
from pathlib import Path

from kops.cluster.layout import ports

LEFT_OUT = range(92, 250)
"""The last three digits of the ports that `kops cluster up` chooses by itself: 9092, 10092 and so on, and 100 above."""


def free_ports(count: int) -> list[int]:
    """Return different ports of 127.0.0.1 that nothing listens on. The next thousands of calls return others."""
    candidates = [port for port in ports.lasting_ports() if port % 1000 not in LEFT_OUT]
    if not candidates:
        return ports.free_ports(count)
    path = Path(tempfile.gettempdir()) / f"kops-test-ports-{os.getuid()}"
    with open(path, "a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        at = int(file.read() or os.getpid() * 97) % len(candidates)
        found: list[int] = []
        for _ in candidates:
            if len(found) == count:
                break
            if ports.is_free(candidates[at]):
                found.append(candidates[at])
            at = (at + 1) % len(candidates)
        file.truncate(0)
        file.write(str(at))
    assert len(found) == count, f"only {len(found)} of {count} ports are free"
    return found
