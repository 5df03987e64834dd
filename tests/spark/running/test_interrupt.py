"""A scan that is interrupted while its Spark ends by itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from kops.spark.interrupt import _Run


class Gone:
    """A session whose JVM has ended."""

    def __init__(self, ended: threading.Event) -> None:
        self.ended = ended

    def stop(self) -> None:
        self.ended.set()
        raise Py4JNetworkError("Answer from Java side is empty")


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_jvm_that_a_signal_has_ended_already(capfd: pytest.CaptureFixture[str]) -> None:
    """The signal of `timeout` goes to the whole process group."""
    ended = threading.Event()

    def work(_: Any) -> int:
        assert ended.wait(60)
        return 1

    run = _Run(lambda: Gone(ended), work)
    thread = threading.Thread(target=run.run)
    thread.start()
    assert run.started.wait(60)
    run.interrupt()
    thread.join()
    assert run.interrupted
    assert capfd.readouterr().err == ""
