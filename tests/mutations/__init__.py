"""Hand-made mutations of the product, ten in each package, and the tests that catch them. They measure how much the tests detect.

`python -m tests.mutations` makes each mutation in a copy of the tree and runs the tests that are named with it. `--only NAME` selects one
mutation by its name, or those of a package.
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
