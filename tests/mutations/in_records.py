"""Mutations of `kops.records`."""

from __future__ import annotations

from tests.mutations.mutation import Mutation

MUTATIONS = (
    Mutation(
        "sequence-wraps-early",
        "kops/records/batch.py",
        "    if sequence > _int32(MAX_INT - increment):\n",
        "    if sequence >= _int32(MAX_INT - increment):\n",
        "tests/unit/records/test_batch.py",
    ),
    Mutation(
        "sequence-wraps-to-one",
        "kops/records/batch.py",
        "        return _int32(increment - (MAX_INT - sequence) - 1)\n",
        "        return _int32(increment - (MAX_INT - sequence))\n",
        "tests/unit/records/test_batch.py",
    ),
    Mutation(
        "control-is-transactional",
        "kops/records/batch.py",
        "self.attributes & CONTROL_MASK != 0",
        "self.attributes & TRANSACTIONAL_MASK != 0",
        "tests/unit/records/test_batch.py",
    ),
    Mutation(
        "varint-of-128",
        "kops/records/varint.py",
        "        if byte < 0x80:\n",
        "        if byte <= 0x80:\n",
        "tests/unit/records/test_varint.py",
    ),
    Mutation(
        "smallest-batch-is-none",
        "kops/records/scanning/scanner.py",
        "max_magic == 127) and total >= least else 0",
        "max_magic == 127) and total > least else 0",
        "tests/unit/records/test_scan.py",
    ),
    Mutation(
        "resync-goes-back",
        "kops/records/scanning/resync.py",
        "        if last_offset is None or 0 < batch.last_offset - last_offset <= farthest:\n",
        "        if last_offset is None or batch.last_offset - last_offset <= farthest:\n",
        "tests/unit/records/test_scan.py",
    ),
    Mutation(
        "what-is-known-is-trusted-from-the-middle-on",
        "kops/records/scanning/checked.py",
        "position < found.end and (followed or position == found.start)",
        "position < found.end",
        "tests/unit/records/test_checked.py",
    ),
    Mutation(
        "relative-offsets-in-v0",
        "kops/records/build.py",
        "offset - self.base_offset if self.magic and self.codec else offset",
        "offset - self.base_offset if self.codec else offset",
        "tests/unit/records",
    ),
    Mutation(
        "a-gzip-member-of-18-bytes",
        "kops/records/streams/pieces.py",
        "        if len(view) - position <= _GZIP_IGNORED:\n",
        "        if len(view) - position < _GZIP_IGNORED:\n",
        "tests/unit/records/test_compression.py",
    ),
    Mutation(
        "last-stable-offset-is-read",
        "kops/records/isolation.py",
        "batch.last_offset >= last_stable_offset:",
        "batch.last_offset > last_stable_offset:",
        "tests/unit/records/test_batch.py",
    ),
    Mutation(
        "compacted-without-key",
        "kops/records/validation/validate.py",
        "    if good and not (keyless and rules.compacted):\n",
        "    if good:\n",
        "tests/unit/records/test_validate.py",
    ),
)
