"""Finds the offsets in a partition's live segments on disk. If a broker serves fewer after its start, the difference is lost.

The rules are those of `kops.forensics.plans.chain`, which `repair` and `recover` also use. So they save the offsets that a forecast calls
lost though intact.
"""

from __future__ import annotations

import posixpath
from dataclasses import dataclass, field

from kops.files import Files
from kops.forensics.forecast.offset_ranges import Ranges, merge, subtract
from kops.forensics.plans.chain import chain
from kops.forensics.plans.items import Bad, Item, item_batch, stream_items
from kops.records.decode import iterate
from kops.storage.formats.names import parse_log_file
from kops.storage.segment_files.paths import is_file


@dataclass(slots=True)
class OnDisk:
    """Offsets of data batches, without control batches: `intact` ones, and `damaged` ones as far as headers and neighbours show."""

    intact: Ranges = field(default_factory=list)
    damaged: Ranges = field(default_factory=list)


def live_segments(files: Files, path: str) -> list[tuple[int, str]]:
    """(base offset, path) of the `.log` files without a suffix, by base offset; like Kafka, it ignores anything but regular files."""
    found: list[tuple[int, str]] = []
    for name in files.list(path):
        parsed = parse_log_file(name)
        if parsed is not None and parsed.kind == "log" and parsed.suffix == "":
            segment = posixpath.join(path, name)
            if is_file(files, segment):
                found.append((parsed.offset, segment))
    return sorted(found)


def offsets_on_disk(files: Files, path: str) -> OnDisk:
    """Read every batch of the live segments, past any damage."""
    items: list[Item] = []
    claimed: Ranges = []
    holes: Ranges = []
    for expected, segment in live_segments(files, path):  # A segment begins with the offset in its name.
        damaged = False
        for found in stream_items(files, segment):
            if isinstance(found, Bad):
                damaged = True
                if found.base is not None and found.last is not None:
                    claimed.append((found.base, found.last))
                continue
            if damaged and found.base > expected:
                holes.append((expected, found.base - 1))
            damaged = False
            expected = found.last + 1
            items.append(found)
    log, _ = chain(files, items)
    intact = merge(each for item in log if item.data is None and not item.control for each in _offsets(files, item))
    standing = merge((item.base, item.last) for item in log if item.data is None)
    mended = [(item.base, item.last) for item in log if item.data is not None]
    low, high = (standing[0][0], standing[-1][1]) if standing else (0, 0)
    # The offsets of a damaged header count only if they fit between good batches or right after one.
    near = [(first, last) for first, last in claimed if low <= first <= high + 1 and first <= last < first + (1 << 20)]
    return OnDisk(intact, subtract(merge([*near, *holes, *mended]), standing))


def _offsets(files: Files, item: Item) -> Ranges:
    """The offsets of a batch's records: all that it spans, unless compaction removed some."""
    if item.magic < 2 or item.count == item.last - item.base + 1:
        return [(item.base, item.last)]
    return [(record.offset, record.offset) for record in iterate(item_batch(files, item), holds="nulls")]
