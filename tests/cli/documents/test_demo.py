"""The demo runs to its end. It checks each exit code and each fact itself."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.cli.conftest import PROJECT


@pytest.mark.slow
@pytest.mark.smoke
@pytest.mark.java
def test_the_demo_runs_to_its_end() -> None:
    done = subprocess.run([sys.executable, "tools/demo.py"], cwd=PROJECT, capture_output=True, text=True, timeout=280, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1].endswith("every exit code and every fact above was checked")
