"""Mutated logs: only DecodeError, no hang, memory bounded. Of the million a quarter also goes through the source of the hot loop."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.corpus import PROJECT


def run(count: int, seed: int, timeout: int) -> None:
    """One worker: `count` inputs under a limit of 256 MiB above what Python takes, 10 s an input."""
    command = [sys.executable, "-m", "tests.fuzz.records_worker", str(count), str(seed)]
    done = subprocess.run(command, cwd=PROJECT, env=dict(os.environ), capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    good, bad = map(int, done.stdout.split())
    assert good > count // 2 and bad > count // 4, "the inputs must reach both sides"


@pytest.mark.hot
@pytest.mark.parametrize("seed", [1, 2])
def test_20000_mutations(seed: int) -> None:
    run(20_000, seed, 240)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", [100, 101, *(pytest.param(seed, marks=pytest.mark.once) for seed in range(102, 108))])
def test_a_million_mutations_in_eight_runs(seed: int) -> None:
    run(125_000, seed, 3000)
