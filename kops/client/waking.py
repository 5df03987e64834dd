"""Lets any thread end the wait of the thread that polls a client's connections, and starts that thread.

Source: Kafka's NetworkClient.wakeup (Selector.wakeup).
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import threading

    from kops.client.network import NetworkClient


class WakePipe:
    """A pipe that a network polls together with its connections. Close it when that network is no longer polled."""

    __slots__ = ("_in", "_network", "_out")

    def __init__(self, network: NetworkClient) -> None:
        self._network = network
        self._in, self._out = os.pipe()
        os.set_blocking(self._in, False)
        os.set_blocking(self._out, False)
        network.watch(self._in, self._drain)

    def wake(self) -> None:
        """End the wait, or the next one. Does nothing after `close`."""
        if self._out >= 0:
            try:
                os.write(self._out, b"\x00")
            except OSError:
                return  # enough wakes are waiting, or the pipe was closed just now

    def close(self) -> None:
        """Release the descriptors."""
        closing, self._out = self._out, -1
        os.close(closing)
        os.close(self._in)

    def cancel(self) -> None:
        """Release the descriptors of a pipe whose network may still be polled."""
        self._network.unwatch(self._in)
        self.close()

    def _drain(self) -> None:
        try:
            while len(os.read(self._in, 4096)) == 4096:
                continue
        except BlockingIOError:
            return


def start_thread(thread: threading.Thread, wakes: WakePipe) -> None:
    """Start the thread that polls the network of a pipe. If the system has no thread left, close the pipe."""
    try:
        thread.start()
    except BaseException:
        wakes.cancel()
        raise
