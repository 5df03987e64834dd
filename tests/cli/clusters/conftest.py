"""Shared by the tests of commands on a cluster. A module's fixture `cluster` provides it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kops.cluster.embedded import Cluster
from tests.cli.conftest import Ran

Kops = Callable[..., Ran]


@pytest.fixture
def on(kops: Kops, cluster: Cluster) -> Kops:
    """Run a command on the cluster. `on(…, code=1)` expects it to fail."""

    def run(*arguments: str, code: int = 0) -> Ran:
        ran = kops(*arguments, "-b", cluster.bootstrap_servers)
        assert ran.code == code, ran.text + ran.err
        return ran

    return run
