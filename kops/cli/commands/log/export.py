"""`kops log export`: writes logs as lines of JSON from which the same segments can be rebuilt."""

from __future__ import annotations

from typing import Annotated

import typer

from kops.cli.printing.output import Output
from kops.cli.printing.text import many
from kops.cli.running.exit_codes import CLEAN, FAILED, LOST, PROBLEMS
from kops.cli.running.options import command

RAW_HELP = "Include the bytes of compressed batches, so that an import restores them exactly."


@command(
    examples=[
        ("A partition as lines of JSON.", "kops log export /var/lib/kafka/orders-0 -o orders-0.jsonl"),
        ("Exactly, including the bytes of compressed batches.", "kops log export --raw /var/lib/kafka/orders-0 -o orders-0.jsonl"),
        ("One segment.", "kops log export /var/lib/kafka/orders-0/00000000000000000000.log"),
    ],
)
def export(
    out: Output,
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Log directories, partition directories or segments.")],
    raw: Annotated[bool, typer.Option("--raw", help=RAW_HELP, show_default=False)] = False,
) -> int:
    """Write logs as jsonl, with all that is needed to rebuild the same segments.

    Each line is a partition, a segment, a batch's header (format, codec, flags, producer, sequence, leader epoch, delete horizon) or a
    record. The last line counts them, so that a file that was cut is noticed. kops log import rebuilds the segments. It restores
    uncompressed batches byte for byte, and compressed batches with the same records and headers (byte for byte with --raw). Only the live
    segments of a partition are exported. Damage is reported and not exported; kops log recover handles it.

    68 (4 + 64): there was damage.
    """
    from kops.files import OsFiles
    from kops.forensics.inventory.tree import open_paths, refuse_foreign
    from kops.forensics.lines.exporting import ExportCounts, export_documents

    files = OsFiles(read_only=True)
    inventory = open_paths(paths, files)
    refuse_foreign(paths, inventory, files)
    for problem in inventory.problems:
        out.warn(f"{problem.path}: {problem.reason}")
        out.status |= FAILED
    counts = ExportCounts()
    total = sum(entry.size for entry in inventory.all_files() if entry.kind == "log" and not entry.suffix)
    with out.progress("export", total) as bar:
        for document in export_documents(files, inventory, counts, raw=raw, on_bytes=bar.update):
            if counts.damaged:
                out.status |= PROBLEMS | LOST
            out.record(document)
    for line in counts.unread:
        out.warn(line)
        out.status |= FAILED
    for damage in counts.damaged:
        out.warn(f"not exported: {damage}")
    amounts = ((counts.partitions, "partition"), (counts.segments, "segment"), (counts.batches, "batch"), (counts.records, "record"))
    out.detail(", ".join(many(*each) for each in amounts))
    return CLEAN
