"""Random damage of a partition directory, in kinds that make a loader take all its paths.

The damage is to bytes and sizes; files are missing or left over; headers are wrong under a right checksum; settings and checkpoints do not
fit. The given generator makes all choices, so a seed identifies a trial.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

from kops.records.crc import crc32, crc32c

INTERESTING = (0, 1, -1, 2, 5, 100, 2**15, 2**31 - 1, -(2**31), 2**31, 2**32, 2**40, 2**62, 2**63 - 1, -(2**63))
# position and struct code of the v2 header fields that the checksum covers, and of those that it does not cover
V2_UNDER_CRC = ((21, "h"), (23, "i"), (27, "q"), (35, "q"), (43, "q"), (51, "h"), (53, "i"), (57, "i"))
V2_ABOVE_CRC = ((0, "q"), (8, "i"), (12, "i"), (16, "b"), (17, "i"))
LEGACY_UNDER_CRC = ((16, "b"), (17, "b"), (18, "q"))
SEGMENT_KINDS = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


@dataclass
class Trial:
    """How the damaged directory is loaded, and what was done to it."""

    clean: bool = True
    recovery_point: int = 0
    log_start_offset: int = 0
    config: dict[str, object] = field(default_factory=dict)
    done: list[str] = field(default_factory=list)


def damage(directory: Path, rng: random.Random, log_end_offset: int) -> Trial:
    """Damage the (writable) directory in place."""
    trial = Trial(clean=rng.random() < 0.4)
    trial.recovery_point = rng.choice([0, 0, log_end_offset, log_end_offset, rng.randint(0, log_end_offset + 2)])
    if rng.random() < 0.15:
        trial.log_start_offset = rng.choice([rng.randint(0, log_end_offset), log_end_offset, log_end_offset + 7])
    trial.config["index.interval.bytes"] = rng.choice([0, 256, 512, 4096])
    if rng.random() < 0.1:
        trial.config["segment.index.bytes"] = rng.choice([4, 8, 12, 24, 48, 100])
    if rng.random() < 0.1:
        trial.config["preallocate"] = "true"
        trial.config["segment.bytes"] = 1 << 20
    if rng.random() < 0.2:
        trial.config["producer.id.expiration.ms"] = 1
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        kind = rng.choice(KINDS)
        trial.done.append(f"{kind.__name__}: {kind(directory, rng)}")
    return trial


def _files(directory: Path, suffix: str = "") -> list[Path]:
    return sorted(path for path in directory.iterdir() if path.is_file() and path.name.endswith(suffix))


def _logs(directory: Path) -> list[Path]:
    return _files(directory, ".log")


def _rewrite(path: Path, data: bytes) -> None:
    if path.exists():
        path.chmod(0o644)
    path.write_bytes(data)


def flip_bit(directory: Path, rng: random.Random) -> str:
    """Flip one bit of any file."""
    path = rng.choice(_files(directory))
    data = bytearray(path.read_bytes())
    if not data:
        return "nothing"
    place = rng.randrange(len(data))
    data[place] ^= 1 << rng.randrange(8)
    _rewrite(path, bytes(data))
    return f"{path.name} at {place}"


def overwrite(directory: Path, rng: random.Random) -> str:
    """Overwrite a part of a file with zeros or noise."""
    path = rng.choice(_files(directory))
    data = bytearray(path.read_bytes())
    if not data:
        return "nothing"
    start = rng.randrange(len(data))
    size = min(rng.choice([1, 4, 12, 61, 600, 5000]), len(data) - start)
    data[start : start + size] = bytes(size) if rng.random() < 0.5 else rng.randbytes(size)
    _rewrite(path, bytes(data))
    return f"{path.name} at {start}, {size}"


def truncate(directory: Path, rng: random.Random) -> str:
    """Cut off the end of a file."""
    path = rng.choice(_files(directory))
    data = path.read_bytes()
    size = rng.choice([0, rng.randint(0, len(data)), max(0, len(data) - rng.randint(1, 30))])
    _rewrite(path, data[:size])
    return f"{path.name} to {size}"


def append(directory: Path, rng: random.Random) -> str:
    """Append zeros, noise or a part of a log to a file."""
    path = rng.choice(_files(directory))
    size = rng.choice([1, 5, 17, 18, 26, 60, 61, 500])
    log = rng.choice(_logs(directory)).read_bytes() if _logs(directory) else b""
    tail = rng.choice([bytes(size), rng.randbytes(size), log[:size], log])
    _rewrite(path, path.read_bytes() + tail)
    return f"{path.name}, {len(tail)}"


def delete(directory: Path, rng: random.Random) -> str:
    """Delete a file."""
    path = rng.choice(_files(directory))
    path.unlink()
    return path.name


def delete_kind(directory: Path, rng: random.Random) -> str:
    """Delete all files of one kind."""
    suffix = rng.choice([*SEGMENT_KINDS[1:], "checkpoint"])
    for path in _files(directory, suffix):
        path.unlink()
    return suffix


def leave(directory: Path, rng: random.Random) -> str:
    """Leave a copy of a segment's files, as an interrupted cleaning, split or deletion does."""
    source = rng.choice(_files(directory))
    base = source.name.partition(".")[0]
    suffix = rng.choice([".swap", ".swap", ".cleaned", ".deleted"])
    whole = rng.random() < 0.6
    for path in _files(directory) if whole else [source]:
        if path.name.startswith(base + ".") and path.name.endswith(SEGMENT_KINDS):
            _rewrite(directory / (path.name + suffix), path.read_bytes())
    return f"{base}{suffix}, {'all files' if whole else source.name}"


def rename(directory: Path, rng: random.Random) -> str:
    """Rename a file of a segment to another offset or suffix."""
    source = rng.choice(_files(directory))
    base, _, rest = source.name.partition(".")
    if not base.isdigit():
        return "nothing"
    offset = rng.choice([int(base) + 1, int(base) + rng.randint(0, 300), max(0, int(base) - rng.randint(0, 20)), 0])
    name = rng.choice([f"{offset:020d}.{rest}", f"{source.name}.deleted", f"{source.name}.swap", f"{offset}.{rest}"])
    source.rename(directory / name)
    return f"{source.name} to {name}"


def copy_segment(directory: Path, rng: random.Random) -> str:
    """Copy a whole segment to another offset."""
    logs = _logs(directory)
    if not logs:
        return "nothing"
    base = rng.choice(logs).name.partition(".")[0]
    offset = int(base) + rng.choice([1, 3, 500]) if base.isdigit() else 0
    for path in _files(directory):
        if path.name.startswith(base + "."):
            _rewrite(directory / f"{offset:020d}{path.suffix}", path.read_bytes())
    return f"{base} as {offset}"


def strange_file(directory: Path, rng: random.Random) -> str:
    """Add a file that does not belong there."""
    name = rng.choice(
        [
            "foo.log",
            "foo.index",
            "foo.snapshot",
            "note.txt",
            "7.swap",
            "-5.log",
            ".log",
            "00000000000000000009.checkpoint.deleted",
        ]
    )
    _rewrite(directory / name, rng.choice([b"", b"abc", rng.randbytes(40)]))
    return name


def lying_header(directory: Path, rng: random.Random) -> str:
    """Change a field of a batch header. If the checksum covers the field, correct it."""
    logs = [path for path in _logs(directory) if path.stat().st_size > 61]
    if not logs:
        return "nothing"
    path = rng.choice(logs)
    data = bytearray(path.read_bytes())
    starts = _batch_starts(data)
    start, size = rng.choice(starts[-3:] if rng.random() < 0.5 else starts)
    magic = data[start + 16]
    under = V2_UNDER_CRC if magic == 2 else LEGACY_UNDER_CRC
    position, code = rng.choice(under + (V2_ABOVE_CRC if magic == 2 else V2_ABOVE_CRC[:2]))
    old = struct.unpack_from(">" + code, data, start + position)[0]
    bits = struct.calcsize(code) * 8
    value = rng.choice([old + 1, old - 1, old ^ (1 << rng.randrange(bits)), rng.choice(INTERESTING), rng.getrandbits(bits)])
    value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    struct.pack_into(">" + code, data, start + position, value)
    if position >= 16 and (position, code) in under:
        _mend_crc(data, start, size, magic)
    _rewrite(path, bytes(data))
    return f"{path.name}: batch at {start}, field at {position}: {old} to {value}"


def lying_record(directory: Path, rng: random.Random) -> str:
    """Change a byte among a batch's records and correct the checksum."""
    logs = [path for path in _logs(directory) if path.stat().st_size > 61]
    if not logs:
        return "nothing"
    path = rng.choice(logs)
    data = bytearray(path.read_bytes())
    starts = _batch_starts(data)
    controls = [found for found in starts if data[found[0] + 16] == 2 and data[found[0] + 22] & 0x20]
    start, size = rng.choice(controls if controls and rng.random() < 0.8 else starts)
    first = 61 if data[start + 16] == 2 else 26
    if size <= first:
        return "nothing"
    place = start + rng.randrange(first, size)
    data[place] = rng.randrange(256)
    _mend_crc(data, start, size, data[start + 16])
    _rewrite(path, bytes(data))
    return f"{path.name}: batch at {start}, byte at {place}"


def _batch_starts(data: bytes | bytearray) -> list[tuple[int, int]]:
    found = []
    position = 0
    while position + 26 <= len(data):
        size = 12 + struct.unpack_from(">i", data, position + 8)[0]
        if size < 26 or position + size > len(data):
            break
        found.append((position, size))
        position += size
    return found or [(0, min(len(data), 61))]


def _mend_crc(data: bytearray, start: int, size: int, magic: int) -> None:
    whole = bytes(data[start : start + size])
    if magic == 2:
        struct.pack_into(">I", data, start + 17, crc32c(whole[21:]))
    else:
        struct.pack_into(">I", data, start + 12, crc32(whole[16:]))


def drop_batch(directory: Path, rng: random.Random) -> str:
    """Remove or duplicate a batch, or swap two batches."""
    logs = _logs(directory)
    if not logs:
        return "nothing"
    path = rng.choice(logs)
    data = path.read_bytes()
    batches = [data[start : start + size] for start, size in _batch_starts(data)]
    place = rng.randrange(len(batches))
    how = rng.choice(["drop", "twice", "swap"])
    if how == "drop":
        del batches[place]
    elif how == "twice":
        batches.insert(place, batches[place])
    else:
        other = rng.randrange(len(batches))
        batches[place], batches[other] = batches[other], batches[place]
    _rewrite(path, b"".join(batches))
    return f"{path.name}: {how} {place}"


def epoch_text(directory: Path, rng: random.Random) -> str:
    """Write another leader-epoch-checkpoint."""
    text = rng.choice(
        [
            b"",
            b"0\n",
            b"0\n1\n",
            b"1\n0\n",
            b"0\n1\n0 0\n",
            b"0\n2\n0 0\n1 5\n",
            b"0\n2\n3 9\n1 5\n",
            b"0\n1\n-1 0\n",
            b"0\n1\n0 -4\n",
            b"0\n1\n7 99999\n",
            b"0\n1\n 0 0\n",
            b"0\n1\n0 0 \n",
            b"0\r\n1\r\n+0 +0\r\n",
            b"0\n1\n0 x\n",
            b"0\n-1\n",
            b"x\n",
            b"0\n1\n0 \xff\n",
            b"0\n3\n0 0\n0 3\n2 2\n",
        ]
    )
    _rewrite(directory / "leader-epoch-checkpoint", text)
    return repr(text)


def metadata_text(directory: Path, rng: random.Random) -> str:
    """Write another partition.metadata."""
    text = rng.choice(
        [
            b"",
            b"version: 0\n",
            b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA",
            b"version: 0\ntopic_id: 015ff02115924efb84e8bw",
            b"version: 7\ntopic_id: 015ff02115924efb84e8bw\n",
            b"version: -1\ntopic_id: 015ff02115924efb84e8bw\n",
            b"version: x\ntopic_id: 015ff02115924efb84e8bw\n",
            b"version: 0\ntopic_id: tooshort\n",
            b"version: 0\ntopic_id",
            b"version 0\n",
            b"\xff\xfe",
        ]
    )
    _rewrite(directory / "partition.metadata", text)
    return repr(text)


KINDS = (
    flip_bit,
    overwrite,
    truncate,
    append,
    delete,
    delete_kind,
    leave,
    rename,
    copy_segment,
    strange_file,
    lying_header,
    lying_header,
    lying_header,
    lying_record,
    lying_record,
    drop_batch,
    drop_batch,
    epoch_text,
    metadata_text,
)
