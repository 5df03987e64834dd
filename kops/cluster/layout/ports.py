"""Ports on this machine: which ones are free, and a range of free ports if the user gave none."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import random
import socket
from typing import TYPE_CHECKING, Final

from kops.cluster.layout.settings import CONTROLLER_PORT_OFFSET, DEFAULT_PORT, HOST
from kops.errors import KopsError, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_log: Final = logging.getLogger(__name__)

MAX_PORT: Final = 65_535
_STEP: Final = 1_000
_TAKEN: Final = (errno.EADDRINUSE, errno.EACCES)
_LOWEST: Final = 10_000
_ENOUGH: Final = 1_000
_OUTGOING: Final = (49_152, 65_535)
"""The ports of outgoing connections by RFC 6335, where the system does not say."""


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a listener could bind the port now. Raises OSError if the address does not belong to this machine."""
    family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    with socket.socket(family, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(address)
            sock.listen(1)
        except OSError as error:
            if error.errno in _TAKEN:
                return False
            raise
    return True


def check_base(base_port: int, node_count: int) -> None:
    """Raise UsageError if the ports of so many nodes do not fit above `base_port`."""
    highest = MAX_PORT - CONTROLLER_PORT_OFFSET - node_count + 1
    if not 1 <= base_port <= highest:
        raise UsageError(f"--port-base {base_port}: allowed are 1 to {highest} for {node_count} brokers")


def ports_above(base_port: int, node_count: int) -> list[int]:
    """Return the ports of a cluster with so many nodes: those for clients, then those of the quorum."""
    return [
        *range(base_port, base_port + node_count),
        *range(base_port + CONTROLLER_PORT_OFFSET, base_port + CONTROLLER_PORT_OFFSET + node_count),
    ]


def find_base(node_count: int, *, avoid: Iterable[int] = ()) -> int:
    """Return a base whose ports are all free: 9092, else 10092 and so on. Raises KopsError if there is none."""
    shunned = set(avoid)
    for base_port in range(DEFAULT_PORT, MAX_PORT - CONTROLLER_PORT_OFFSET - node_count, _STEP):
        ports = ports_above(base_port, node_count)
        if shunned.isdisjoint(ports) and all(map(is_free, ports)):
            return base_port
    raise KopsError(f"no {node_count} free ports from {DEFAULT_PORT} in steps of {_STEP} (choose others with --port-base)")


@contextlib.contextmanager
def choosing() -> Iterator[None]:
    """Let only one process of this user at a time choose ports that its brokers bind a moment later. Others wait.

    Two clusters that start at the same moment would find the same ports free. The lock is on the home directory, so it leaves no file.
    Without a home that can be locked nobody waits.
    """
    fd = -1
    try:
        fd = os.open(os.path.expanduser("~"), os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        _log.debug("ports are chosen without a lock", exc_info=True)
    try:
        yield
    finally:
        if fd >= 0:
            os.close(fd)


def free_ports(count: int) -> list[int]:
    """Return free ports, chosen at random. They are not among those that the system gives to outgoing connections, if that is possible.

    An outgoing connection would otherwise take the port of a broker that is not running at the moment.
    """
    found: list[int] = []
    candidates = lasting_ports()
    for port in random.sample(candidates, min(len(candidates), 50 + 10 * count)):
        if len(found) == count:
            return found
        if is_free(port):
            found.append(port)
    return found + _any_ports(count - len(found))


def lasting_ports() -> range:
    """Return the unprivileged ports that the system does not give to outgoing connections. Where few are left, the range is empty."""
    try:
        with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
            first, last = map(int, file.read().split())
    except (OSError, ValueError):
        first, last = _OUTGOING
    ranges = (range(_LOWEST, first), range(last + 1, MAX_PORT + 1))
    longest = max(ranges, key=len)
    return longest if len(longest) >= _ENOUGH else range(0)


def _any_ports(count: int) -> list[int]:
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    try:
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def check_free(addresses: Iterable[tuple[str, int]], *, advice: str) -> None:
    """Raise KopsError with the first taken port and, if the system reports it, the process that listens on it."""
    for host, port in addresses:
        if not is_free(port, host or HOST):
            owner = listener_process(port)
            by = f" by process {owner[0]} ({owner[1]})" if owner else ""
            raise KopsError(f"port {port} is taken{by}; {advice}")


def listener_process(port: int) -> tuple[int, str] | None:
    """Return id and name of the process that listens on a port, or None. Linux reports this for processes of the same user."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for name in os.listdir("/proc"):
        if name.isdigit() and not wanted.isdisjoint(_open_files(name)):
            try:
                with open(f"/proc/{name}/comm") as file:
                    return int(name), file.read().strip()
            except OSError:
                return None
    return None


def _listening_inodes(port: int) -> list[str]:
    listening = "0A"
    found = []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            with open(table) as file:
                rows = [line.split() for line in file.readlines()[1:]]
        except OSError:
            continue
        found += [row[9] for row in rows if row[3] == listening and int(row[1].rpartition(":")[2], 16) == port]
    return found


def _open_files(pid: str) -> set[str]:
    found = set()
    try:
        for name in os.listdir(f"/proc/{pid}/fd"):
            found.add(os.readlink(f"/proc/{pid}/fd/{name}"))
    except OSError:
        return found  # another user's process, or one that has ended
    return found
