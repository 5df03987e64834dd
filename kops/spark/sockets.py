"""The buffers of the Unix sockets between Spark's JVM and its Python workers.

A worker holds back the end of a batch until it writes the next one (`ArrowStreamSerializer.dump_stream`), and a Unix socket holds 208 KiB
by default. So the JVM waits for the beginning of the next batch, the worker waits for the JVM to take it, and the two take turns. With room
for half a batch or more they work at the same time.
"""

from __future__ import annotations

import os
import socket
import stat

SEND_BUFFER = 4 << 20
"""The requested buffer size. Linux grants up to twice `net.core.wmem_max`."""
_ENOUGH = 2 << 20
_LIMIT = "/proc/sys/net/core/wmem_max"


def can_be_wide(limit: str = _LIMIT) -> bool:
    """Whether this machine allows a Unix socket enough room. If not, or if that is not known, TCP is better: it sizes its buffers
    itself."""
    try:
        with open(limit, encoding="ascii") as file:
            return int(file.read()) >= _ENOUGH
    except (OSError, ValueError):
        return False


def widen(descriptors: str = "/dev/fd") -> None:
    """Give the Unix stream sockets of this process room for `SEND_BUFFER` bytes. For a Spark worker, which has no others.

    If `descriptors` can't be listed, nothing changes: slower, but not wrong.
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
            continue  # Closed meanwhile, for example that of the listing itself.
