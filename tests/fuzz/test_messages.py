"""Mutated messages are read as a message or raise a DecodeError, quickly and in bounded memory."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.corpus import PROJECT


def fuzz(count: int, seed: int) -> tuple[int, int]:
    """Run the worker. Return the number of valid and of invalid messages."""
    command = [sys.executable, "-m", "tests.fuzz.messages_worker", str(count), str(seed)]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    good, bad = done.stdout.split()
    return int(good), int(bad)


def test_mutated_messages() -> None:
    good, bad = fuzz(1_500, 1)
    assert good > 200 and bad > 200


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 4))
def test_many_mutated_messages(seed: int) -> None:
    good, bad = fuzz(15_000, seed)
    assert good > 2_000 and bad > 2_000
