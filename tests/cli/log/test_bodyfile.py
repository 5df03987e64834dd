"""`kops log timeline --format bodyfile` is read by The Sleuth Kit's own mactime (Debian's package sleuthkit)."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.cli.conftest import Ran
from tests.support import corpus

pytestmark = pytest.mark.slow
Kops = Callable[..., Ran]
LETTERS = {"roll": "...b", "topic-created": "...b", "deleted": "..c."}
"""What an event is to mactime, if it is not a change of contents: m, a, c and b are the four times."""
UNSET = "0000-00-00T00:00:00Z"


def mactime(body: Path) -> list[dict[str, str]]:
    """Return the rows of mactime that have a time: it shows the unset times of an event, too."""
    program = shutil.which("mactime")
    assert program is not None, "there is no mactime: install Debian's package `sleuthkit` (`make browser` does it)"
    ran = subprocess.run([program, "-b", body, "-d", "-y", "-z", "UTC"], capture_output=True, text=True, timeout=120, check=True)
    return [row for row in csv.DictReader(ran.stdout.splitlines()) if row["Date"] != UNSET]


def test_mactime_shows_every_event_at_its_time(kops: Kops, tmp_path: Path) -> None:
    node = corpus.load("cluster-4.3.0").root / "nodes" / "n1"
    body = tmp_path / "body"
    body.write_bytes(kops("log", "timeline", "--format", "bodyfile", str(node)).out)
    events = [json.loads(line) for line in kops("log", "timeline", "--format", "jsonl", str(node)).text.splitlines()]
    wanted = Counter(
        (
            datetime.fromtimestamp(event["time"] // 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            LETTERS.get(event["event"], "m..."),
            str(event["bytes"] or 0),
            event["path"],
        )
        for event in events
        if event["time"]
    )
    shown = mactime(body)
    assert Counter((row["Date"], row["Type"], row["Size"], row["File Name"].partition(" (")[0]) for row in shown) == wanted
    assert len(wanted) > 50


def test_names_that_would_break_a_line_reach_mactime_whole(kops: Kops, tmp_path: Path) -> None:
    """A directory may have any name."""
    folder = tmp_path / "a|b\nc, d" / "orders-0"
    shutil.copytree(next((corpus.load("cluster-4.3.0").root / "nodes" / "n1").glob("orders-epochs-0")), folder)
    body = tmp_path / "body"
    body.write_bytes(kops("log", "timeline", "--format", "bodyfile", str(folder)).out)
    shown = mactime(body)
    assert shown and all(row["File Name"].startswith(f"{tmp_path}/a_b_c, d/orders-0/") for row in shown)
