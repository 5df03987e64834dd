"""Checkpoints, written at once or in a side thread."""

from __future__ import annotations

import errno

import pytest

from kops.files import MemoryFiles
from kops.files.faulty import FaultyFiles
from kops.storage.background.work import SideWork
from kops.storage.formats.checkpoints import TopicPartition, read_offset_checkpoint
from kops.storage.log_checkpoints import OffsetCheckpoints, scala_map_order
from kops.storage.log_dir_failure import LogDirFailureChannel
from kops.storage.scheduler import Scheduler
from tests.support.logs.twins.side_threads import SideThreads

ORDERS = TopicPartition("orders", 0)
NAME = "recovery-point-offset-checkpoint"


class Written:
    """The checkpoints of one directory."""

    def __init__(self) -> None:
        memory = MemoryFiles()
        memory.mkdir("/logs")
        self.files = FaultyFiles(memory)
        self.failures = LogDirFailureChannel()
        self.threads = SideThreads()
        self.scheduler = Scheduler(lambda: 0)
        self.scheduler.side_work = SideWork(self.threads.in_thread)
        self.checkpoints = OffsetCheckpoints(self.files, self.failures)

    def aside(self, offset: int) -> None:
        self.checkpoints.write_aside(self.scheduler, "/logs", NAME, {ORDERS: offset})

    def now(self, offset: int) -> None:
        self.checkpoints.write("/logs", NAME, {ORDERS: offset})

    def offset(self) -> int:
        return read_offset_checkpoint(self.files.read_all(f"/logs/{NAME}"))[ORDERS]


@pytest.fixture
def written() -> Written:
    return Written()


def test_what_a_truncation_writes_is_not_replaced_by_what_was_collected_before(written: Written) -> None:
    written.aside(100)
    written.now(50)
    written.threads.run()
    assert written.offset() == 50


def test_the_newest_of_several_stays(written: Written) -> None:
    written.aside(1)
    written.aside(2)
    written.threads.begun.reverse()
    written.threads.run()
    assert written.offset() == 2


def test_the_order_follows_the_partitions_that_are_there(written: Written) -> None:
    orders = [TopicPartition("orders", number) for number in range(40)]
    for keys in (orders[:3], orders, orders, orders[5:], list(reversed(orders[5:]))):
        for size_is_known in (True, False):
            written.checkpoints.write("/logs", NAME, {key: key.partition + 7 for key in keys}, size_is_known=size_is_known)
            found = read_offset_checkpoint(written.files.read_all(f"/logs/{NAME}"))
            assert list(found) == scala_map_order(keys, size_is_known=size_is_known)
            assert all(offset == key.partition + 7 for key, offset in found.items())


def test_a_failure_takes_the_directory_offline(written: Written) -> None:
    written.files.at, written.files.error = 1, errno.ENOSPC
    written.aside(1)
    written.threads.work()
    assert not written.failures.offline
    written.threads.tell()
    assert written.failures.has_offline("/logs")


def test_nothing_is_written_to_a_directory_that_went_offline_meanwhile(written: Written) -> None:
    """Its lock is released, so another process may have it."""
    written.aside(1)
    written.failures.maybe_add_offline_log_dir("/logs", "broken", OSError())
    written.threads.run()
    assert written.files.operations == []
