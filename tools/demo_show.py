"""Runs and shows the demo's commands, each as its own process, and checks exit codes and facts."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

from kops.cli.printing.text import printable
from kops.cli.running import exit_codes

PROJECT = Path(__file__).resolve().parent.parent
WIDTH = 150


class Demo:
    """Runs commands in a folder, shows them, checks them, counts their time. `environment` is given to them as well."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment: dict[str, str] = {}
        self.facts: list[str] = []
        self.took: list[tuple[str, float]] = []

    def title(self, text: str) -> None:
        """A heading."""
        print(f"\n\033[1m{text}\033[0m" if sys.stdout.isatty() else f"\n{text}\n{'-' * len(text)}", flush=True)

    def note(self, text: str) -> None:
        """Print a sentence of the demo itself."""
        print(f"  {text}", flush=True)

    def kops(
        self, line: str, *, code: int, lines: int = 8, having: tuple[str, ...] = (), wrap: bool = False, leave_out: str | None = None
    ) -> None:
        """Run `kops <line>` and show at most `lines` lines, long ones cut (or wrapped), without those that hold `leave_out`. The exit code
        must be `code`, the output must hold every text of `having`.
        """
        print(f"$ kops {line}", flush=True)
        started = time.monotonic()
        done = self.run(line)
        took = time.monotonic() - started
        self.took.append((line, took))
        shown = [text for stream in (done.stdout, done.stderr) for text in stream.splitlines()]
        missing = [text for text in having if text not in done.stdout + done.stderr]
        failed = done.returncode != code or missing
        chosen = [text for text in shown if leave_out is None or leave_out not in text][:lines]
        for text in shown if failed else chosen:
            print(fitted(text, wrap=wrap or bool(failed)))
        if len(shown) > len(chosen) and not failed:
            print(f"  … {len(shown) - len(chosen)} more lines")
        print(f"  exit code {done.returncode} ({meaning(line, done.returncode)}), {took:.2f} s\n", flush=True)
        if failed:
            wanted = f"exit code {code}" + "".join(f", {text!r} in the output" for text in missing)
            sys.exit(f"demo: kops {line}: expected {wanted}")

    def run(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run `kops <line>` and show nothing."""
        return subprocess.run(
            [sys.executable, "-m", "kops", *line.split()],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(PROJECT), **self.environment},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

    def ask(self, line: str) -> dict[str, Any]:
        """The JSON document that `kops <line> --format json` prints."""
        found: dict[str, Any] = json.loads(self.run(f"{line} --format json").stdout)
        return found

    def check(self, holds: bool, text: str) -> None:
        """Show a fact that the demo has checked. It must be true."""
        print(f"  {'✓' if holds else '✗'} {text}\n", flush=True)
        if not holds:
            sys.exit(f"demo: not so: {text}")


def fitted(text: str, *, wrap: bool) -> str:
    """A line of output for display: indented, without control characters, cut or wrapped if it is long."""
    safe = printable(text)
    if wrap:
        return textwrap.fill(safe, WIDTH, initial_indent="  ", subsequent_indent=" " * 10, break_on_hyphens=False, drop_whitespace=False)
    return "  " + (safe if len(safe) <= WIDTH else safe[: WIDTH - 1] + "…")


def meaning(line: str, code: int) -> str:
    """The exit code of a command in words."""
    path = tuple(line.split())
    if not exit_codes.sums(path):
        return dict(exit_codes.PLAIN_MEANINGS)[code]
    parts = [words.split(":")[0].split(";")[0] for bit, words in exit_codes.SUM_MEANINGS if bit and code & bit]
    return " + ".join(parts) or "clean"
