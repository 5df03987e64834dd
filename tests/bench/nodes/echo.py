"""A server that answers each message with the same bytes: `python -m tests.bench.nodes.echo` prints its port.

It makes the three system calls that a heartbeat needs (epoll_wait, recvfrom, sendto) and does nothing else. So its CPU is the least that a
server in Python can need. `tests.bench.nodes.heartbeats` measures it beside the nodes.
"""

from __future__ import annotations

import select
import socket
from typing import Final

ANSWER: Final = bytes(18)  # the size of a classic heartbeat's answer


def main() -> None:
    """Serve until the process is killed."""
    listener = socket.create_server(("127.0.0.1", 0))
    print(listener.getsockname()[1], flush=True)
    poller = select.epoll()
    poller.register(listener, select.EPOLLIN)
    clients: dict[int, socket.socket] = {}
    while True:
        for number, _ in poller.poll():
            if number == listener.fileno():
                client = listener.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client
                poller.register(client, select.EPOLLIN)
            elif clients[number].recv(65536):
                clients[number].send(ANSWER)
            else:
                poller.unregister(number)
                clients.pop(number).close()


if __name__ == "__main__":
    main()
