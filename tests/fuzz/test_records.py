"""Mutated logs raise no error other than DecodeError, cause no hang and need bounded memory."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.corpus import PROJECT


def run(count: int, seed: int, timeout: int) -> None:
    """Run a worker with `count` inputs. Its limits are 256 MiB in addition to the memory of Python, and 10 s for each input."""
    command = [sys.executable, "-m", "tests.fuzz.records_worker", str(count), str(seed)]
    done = subprocess.run(command, cwd=PROJECT, env=dict(os.environ), capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    good, bad = map(int, done.stdout.split())
    assert good > count // 2 and bad > count // 4, "the inputs must reach both sides"


@pytest.mark.hot
@pytest.mark.parametrize("seed", [1])
def test_some_mutations(seed: int) -> None:
    run(800 if os.environ.get("KOPS_PURE") else 1_600, seed, 240)


@pytest.mark.slow
@pytest.mark.timeout(0)
def test_many_mutations(seed_count: int | None) -> None:
    """30,000 mutations. `--seeds 1000000` makes a million."""
    run(30_000 if seed_count is None else seed_count, 100, 24 * 3600)


@pytest.mark.slow
@pytest.mark.hot
def test_other_mutations() -> None:
    run(10_000 if os.environ.get("KOPS_PURE") else 20_000, 101, 240)
