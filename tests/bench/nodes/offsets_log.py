"""A partition of `__consumer_offsets` with a million commits. It is made once, copied into a node's directory, and loaded by the node."""

from __future__ import annotations

import re
import shutil
import sys
from pathlib import Path
from typing import Final

from kops.coordinators.groups.offset_and_metadata import OffsetAndMetadata
from kops.coordinators.groups.records.classic import offset_commit_record
from kops.files import OsFiles
from kops.protocol.messages import FindCoordinatorRequest
from kops.records import BatchBuilder
from kops.storage.segments.recovery import rebuild_indexes
from tests.bench.cluster import Client, until
from tests.bench.data import CACHE, FIRST_TIMESTAMP
from tests.bench.measure import Contender, run
from tests.support.nodes.kops_nodes import KopsNodes

COMMITS: Final = 1_000_000
GROUPS: Final = 100
PARTITIONS: Final = 100
A_BATCH: Final = 10
NEVER_EXPIRES_MS: Final = 4_000_000_000_000
"""The time of the commits. It is in the future, so that the log can be kept."""
LOADED: Final = re.compile(r"Finished loading of metadata from __consumer_offsets-0 with epoch \d+ in (\d+)\s?ms.*?[Ll]oaded (\d+) records")


def offsets_log() -> Path:
    """Return the directory of the partition. It is made once. 100 groups commit the positions of 10 of their 100 partitions at a time."""
    folder = CACHE / f"offsets-{COMMITS}" / "__consumer_offsets-0"
    path = folder / f"{0:020d}.log"
    if (folder.parent / ".complete").exists():
        return folder
    folder.mkdir(parents=True, exist_ok=True)
    with open(path, "wb") as file:
        for base in range(0, COMMITS, A_BATCH):
            builder = BatchBuilder(base_offset=base)
            for number in range(base, base + A_BATCH):
                offset = OffsetAndMetadata(number, 0, "", NEVER_EXPIRES_MS)
                group = number // A_BATCH % GROUPS
                partition = number // (A_BATCH * GROUPS) % (PARTITIONS // A_BATCH) * A_BATCH + number % A_BATCH
                record = offset_commit_record(f"group-{group}", "orders", partition, offset)
                builder.append(FIRST_TIMESTAMP, record.key_bytes(), record.value_bytes())
            file.write(builder.build())
    with OsFiles(read_only=True).open(str(path)) as log:
        rebuilt = rebuild_indexes(log, 0)
    path.with_suffix(".index").write_bytes(rebuilt.index)
    path.with_suffix(".timeindex").write_bytes(rebuilt.timeindex)
    (folder.parent / ".complete").touch()
    return folder


def load_figures(nodes: KopsNodes) -> float:
    """Return the seconds in which the one node of a cluster loads the partition, as the node reports. Raises RuntimeError if it loads
    something else.
    """
    (node_id,) = nodes.ids
    nodes.start(node_id)
    client = Client(nodes)
    client.wait_for_brokers()
    until(lambda: getattr(client.ask(node_id, FindCoordinatorRequest(key="group-0"), 3), "error_code", 1) == 0)
    until(lambda: client.partition("__consumer_offsets") is not None)
    until(lambda: bool(loads(nodes)))
    nodes.stop(node_id)
    target = nodes.log_dir(node_id) / "__consumer_offsets-0"
    for old in (*target.glob("*.log"), *target.glob("*index"), *target.glob("*.snapshot"), target / "leader-epoch-checkpoint"):
        old.unlink(missing_ok=True)
    for new in offsets_log().iterdir():
        shutil.copy(new, target / new.name)
    before = len(loads(nodes))
    nodes.start(node_id)
    until(lambda: len(loads(nodes)) > before)
    milliseconds, records = loads(nodes)[-1]
    if records != COMMITS:
        raise RuntimeError(f"{records} of {COMMITS} records were loaded")
    return milliseconds / 1000


def loads(nodes: KopsNodes) -> list[tuple[int, int]]:
    """Return the milliseconds and records of the loads that the node has reported."""
    (node_id,) = nodes.ids
    return [(int(found[1]), int(found[2])) for found in LOADED.finditer(nodes.output(node_id))]


def offline_figures() -> tuple[float, float, float]:
    """Return the seconds, CPU seconds and MiB of `kops log offsets` on the partition, including the start of the process."""
    program = Path(sys.executable).with_name("kops")
    cpu_s, wall_s, mib = run(Contender("kops log offsets", [str(program), "log", "offsets", str(offsets_log())]))
    return wall_s, cpu_s, mib
