'''The commands, one module each: `kops log dump` is `log/dump.py`. A command looks like this:

```python
"""`kops log ls`: segments of log directories and their states."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.table import Column
from kops.cli.running.exit_codes import PROBLEMS
from kops.cli.running.options import command


@command(
    formats=("table", "wide", "json", "jsonl", "yaml", "csv"),       # the first is the default; () = no --format
    examples=[("Segments of one partition.", "kops log ls /var/lib/kafka/orders-0"),   # (what, command line); a test parses each
              ("As csv.", "kops log ls --format csv /var/lib/kafka | head")],
)
def ls(
    out: Output,                                                       # always first, always called out
    paths: Annotated[list[str], typer.Argument(metavar="DIR...", help="Log or partition directories.")],
    all_: Annotated[bool, typer.Option("--all", help="Also deleted ones.")] = False,
) -> int:
    """List segments with their states and ranges.

    Details. This docstring is the text of --help and of the manual page. The first line is that of tree.py, with a full stop.
    """
    from kops.forensics.inventory import ls as forensics_ls                   # heavy imports inside the function

    columns = [Column("file"), Column("base_offset", kind="int"), Column("size", kind="bytes"), Column("crc", wide=True)]
    out.rows((row for row in forensics_ls.walk(paths)), columns, schema="kops.ls/v1", key="segments")
    return PROBLEMS                                                    # the exit code, or None for 0
```

Then one line in `kops/cli/running/tree.py`, `COMMANDS`: `Entry("log ls", "log.ls:ls", "List segments")`. Nothing else is needed: help,
manual page (`make man`), completion, common options and exit codes follow from it.

Rules for commands:

- `--format -o/--output -q -v --no-color` are added and handled by the frame; don't declare them. `out.format` is the chosen format.
- Data: `out.rows(rows, columns, schema=, key=)` for listings (rows: any iterable of mappings; a generator is streamed),
  `out.document(mapping, schema=)` for a single answer (a value may be an iterator, which is streamed, or a function without arguments,
  which is called when its turn comes: totals at the end), `out.record(mapping)` for a line of jsonl with exactly these keys, `out.write(str
  | bytes)` and `out.line(str)` for other text. Never use `print` or `sys.stdout`. In a table, show names and keys through `Column`s: these
  escape control characters.
- Messages: `out.say` (hidden by `-q`), `out.detail` (shown by `-v`), `out.warn`. They go to stderr.
- Progress: `with out.progress("verify", total_bytes) as bar: bar.update(n)`, or `unit="batches"`. It is shown only on a terminal.
- Exit code: return it, or set `out.status |= PROBLEMS` as soon as it is known; both are combined. Set it early: if the reader of stdout
  exits (`| head`) or the user presses Ctrl-C, `out.status` is used. The names of codes are in `kops.cli.running.exit_codes`.
- Errors: raise `KopsError`s (`UsageError` for an invalid value: 16 or 2). The frame prints one line and chooses the code. `OSError`s may
  propagate, too.
- Ctrl-C: `KeyboardInterrupt` may propagate. The frame keeps what was printed (also `-o FILE`; an open JSON document is closed with
  `"interrupted": true`) and returns 32, combined with `out.status`. Set `out.resume = "kops log … --from-offset 17"` to have it printed.
  Worker processes must ignore SIGINT.
- A closed pipe raises an exception of the frame from `out.write` and similar methods. Let it propagate; clean up with `with` and `finally`.
- Options may be anywhere. An option that can be given many times is a `list[str]`. If Kafka has the option, use Kafka's name.
'''
