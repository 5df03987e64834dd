"""The Unix sockets between Spark's JVM and its Python workers: how much may be on its way.

A worker keeps the end of a batch back until it writes the next one (`ArrowStreamSerializer.dump_stream`), and a Unix socket holds 208 KiB
unless it is told otherwise. So the JVM waits for the next batch's beginning, the worker for the JVM to take it, and the two take turns.
With room for half a batch and more they work at the same time.
"""

from __future__ import annotations

import os
import socket
import stat

SEND_BUFFER = 4 << 20
"""What a worker asks for. Linux gives up to twice `net.core.wmem_max`."""
_ENOUGH = 2 << 20
_LIMIT = "/proc/sys/net/core/wmem_max"


def can_be_wide(limit: str = _LIMIT) -> bool:
    """Whether this machine allows a Unix socket enough room; where not, or where that is not known, TCP serves better, which sees to its
    room itself."""
    try:
        with open(limit, encoding="ascii") as file:
            return int(file.read()) >= _ENOUGH
    except (OSError, ValueError):
        return False


def widen(descriptors: str = "/dev/fd") -> None:
    """Give the Unix stream sockets of this process room for `SEND_BUFFER` bytes. For a Spark worker, which has no others.

    Where `descriptors` can't be listed, all stays as it is: slower, not wrong.
    """
    try:
        names = os.listdir(descriptors)
    except OSError:
        return
    for name in names:
        try:
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            with socket.socket(fileno=os.dup(int(name))) as each:
                if each.family == socket.AF_UNIX and each.type == socket.SOCK_STREAM:
                    each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER)
        except OSError:
            continue  # closed since: that of the listing itself, for one
