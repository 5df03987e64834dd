"""Hand-made mutations of the product, ten a package, and the tests that catch them: they measure the power of the tests.

`python -m tests.mutations` makes each in a copy of the tree and runs the tests that are named with it; `--only NAME` one of them, by its
name or the name of a package.
"""

from __future__ import annotations

from tests.mutations import in_forensics, in_metadata, in_records, in_replication, in_storage
from tests.mutations.mutation import Mutation

BY_PACKAGE: dict[str, tuple[Mutation, ...]] = {
    "records": in_records.MUTATIONS,
    "storage": in_storage.MUTATIONS,
    "replication": in_replication.MUTATIONS,
    "metadata": in_metadata.MUTATIONS,
    "forensics": in_forensics.MUTATIONS,
}
