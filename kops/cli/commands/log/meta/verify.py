"""`kops log meta verify`: checks that a node can read its metadata, and that the snapshots agree with the log."""

from __future__ import annotations

from kops.cli.commands.log.meta.loading import Source
from kops.cli.commands.log.verify import COLUMNS, human, status_of
from kops.cli.printing.output import Output
from kops.cli.printing.text import many
from kops.cli.running.options import command

SCHEMA = "kops.meta-verify/v1"


@command(
    formats=("table", "json", "jsonl", "yaml", "csv"),
    examples=[
        ("Check whether a controller can start with this.", "kops log meta verify /var/lib/kafka"),
        ("The findings for a program.", "kops log meta verify --format json /var/lib/kafka/__cluster_metadata-0"),
    ],
)
def verify(out: Output, path: Source) -> int:
    """Verify the metadata log and its snapshots; read-only.

    It makes all checks of "kops log verify --level full". Then it replays every record, as a node does, and checks each snapshot against
    the log, as far as the log reaches. The exit code is 4 if there is an error or a warning. kops-findings(7) explains the findings.
    """
    from kops.files import OsFiles
    from kops.forensics.metadata_log.source import open_metadata
    from kops.forensics.metadata_log.verify import verify_metadata

    files = OsFiles(read_only=True)
    source = open_metadata(path, files)
    found = verify_metadata(source, files)
    out.status |= status_of(found)
    if out.format == "table":
        for each in found:
            if each.is_problem or out.verbosity > 0:
                out.line(human(out, each))
        problems = sum(each.is_problem for each in found)
        verdict = many(problems, "problem") if problems else "clean"
        out.line(f"{verdict} in {many(len(source.logs), 'segment')} and {many(len(source.snapshots), 'snapshot')} of the metadata log")
    else:
        out.rows((each.to_json() for each in found), COLUMNS, schema=SCHEMA, key="findings")
    return out.status
