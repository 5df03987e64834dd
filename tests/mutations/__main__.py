"""The runner: `python -m tests.mutations [--only NAME] [--tests TESTS] [--ring fast|slow]`. The package describes it."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.mutations import BY_PACKAGE
from tests.mutations.mutation import Mutation

ROOT = Path(__file__).parents[2]
LEFT_OUT = shutil.ignore_patterns(".*", "build", "dist", "*.so", "__pycache__", "*.egg-info")
RINGS = {"fast": "not slow", "slow": "slow"}
TIMEOUT_S = 1_800


def run(tree: Path, mutation: Mutation, tests: str, ring: str) -> str | None:
    """Make the mutation in `tree`, run tests, and undo it. Return the first test that fails, or None if the mutation survives."""
    path = tree / mutation.path
    source = path.read_text(encoding="utf-8")
    assert source.count(mutation.old) == 1, f"{mutation.name}: its text is {source.count(mutation.old)} times in {mutation.path}"
    path.write_text(source.replace(mutation.old, mutation.new), encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-m", RINGS[ring], *tests.split()]
    environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1", "KOPS_PURE": "1"}
    try:
        ended = subprocess.run(command, cwd=tree, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    finally:
        path.write_text(source, encoding="utf-8")
    if ended.returncode in (0, 5):
        return None
    found = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - |$)", ended.stdout, re.M)
    assert found is not None, f"{mutation.name}: pytest ended with {ended.returncode}\n{ended.stdout[-3000:]}{ended.stderr[-3000:]}"
    return found[1]


def main() -> int:
    """Run all mutations, or those that were selected. Return 1 if one survives."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutations")
    parser.add_argument("--only", help="a mutation, or a package")
    parser.add_argument("--tests", help="other tests than those that are named with a mutation")
    parser.add_argument("--ring", choices=RINGS, help="another ring")
    options = parser.parse_args()
    chosen = [(package, one) for package, those in BY_PACKAGE.items() for one in those if options.only in (None, package, one.name)]
    survived = 0
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        shutil.copytree(ROOT, tree, ignore=LEFT_OUT)
        for package, one in chosen:
            ring = options.ring or one.ring
            caught_by = run(tree, one, options.tests or one.tests, ring)
            survived += caught_by is None
            print(f"{package:12} {one.name:50} {ring:5} {'survived' if caught_by is None else 'caught by ' + caught_by}", flush=True)
    print(f"{len(chosen) - survived} of {len(chosen)} caught")
    return int(survived > 0)


if __name__ == "__main__":
    sys.exit(main())
