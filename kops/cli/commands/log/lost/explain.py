"""`kops log explain`: explains the meaning and cause of a finding, and what to do."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.options import command
from kops.errors import UsageError

SCHEMA = "kops.explain/v1"
_WIDTH = 100
_TITLES = (("meaning", "Meaning"), ("example", "Example"), ("cause", "Cause"), ("kafka", "Kafka"), ("remedy", "Remedy"))


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Explain a finding of verify.", "kops log explain batch-crc-mismatch"),
        ("All codes.", "kops log explain --all"),
    ],
)
def explain(
    out: Output,
    codes: Annotated[
        list[str] | None, typer.Argument(metavar="[CODE...]", help="Codes, as kops log verify, dump and recover print them.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All codes.", show_default=False)] = False,
) -> int:
    """Explain the code of a finding: meaning, example, cause, what Kafka does, and the remedy.

    The manual page kops-findings(7) has the same text for all codes. For the code of damage that dump and recover print, the findings that
    verify makes of it are explained.
    """
    from kops.forensics.findings.damage_codes import FINDINGS
    from kops.forensics.findings.explanations import EXPLANATIONS, to_json

    if bool(codes) == all_:
        raise UsageError("name the code of a finding, or --all")
    wanted = sorted(EXPLANATIONS) if all_ else []
    for code in codes or ():
        names = FINDINGS.get(code, (code,))
        if names != (code,):
            out.say(f"{code} is damage that kops log verify calls {' or '.join(names)}")
        wanted += names
    chosen = [to_json(code) for code in wanted]
    if all_ or out.format != "table":
        columns = [Column("code"), Column("severity"), Column("meaning"), *(Column(key, wide=True) for key, _ in _TITLES[1:])]
        out.rows(chosen, columns, schema=SCHEMA, key="codes")
        return 0
    for number, each in enumerate(chosen):
        if number:
            out.line()
        out.line(f"{each['code']} ({each['severity']})")
        for key, title in _TITLES:
            text = each[key] or "nothing to do"
            out.line(textwrap.fill(text, _WIDTH, initial_indent=f"  {title + ':':9} ", subsequent_indent=" " * 12, break_on_hyphens=False))
    return 0
