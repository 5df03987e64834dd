"""A finding, in one form for `verify`, `index check`, `repair` and Spark.

A finding is `{severity, code, file, position, length, base_offset, last_offset, records, detail, fix}` in every output of kops. The codes
are stable. `kops.forensics.findings.codes` has their texts; the manual page kops-findings is made from it.

Severities:

* `error`: records are lost, unreadable or wrong, or Kafka fails.
* `warning`: something is wrong or may be wrong, but Kafka repairs it by itself without losing records.
* `info`: worth knowing, but nothing is wrong (for example files that a crash or a deletion leaves).

Errors and warnings are problems (exit code 4). Infos are not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields

from kops.forensics.findings.codes import CODES, CodeText

__all__ = ["CODES", "SEVERITIES", "CodeText", "Finding", "finding", "from_json", "has_problems", "sort_findings"]

SEVERITIES = ("info", "warning", "error")


@dataclass(slots=True)
class Finding:
    """One thing found.

    `file` is a path as the user gave it, or below it. `position` and `length` are bytes in that file. `base_offset` and `last_offset`
    (inclusive) are the offsets concerned; for damage, those that cannot be read. `records` is how many of them are known to have held a
    record (None: not known). Fields that do not apply are None.
    """

    severity: str
    code: str
    file: str
    position: int | None = None
    length: int | None = None
    base_offset: int | None = None
    last_offset: int | None = None
    records: int | None = None
    detail: str = ""
    fix: str = ""

    @property
    def is_problem(self) -> bool:
        """Whether it counts for exit code 4."""
        return self.severity != "info"

    def to_json(self) -> dict[str, object]:
        """The ten keys, in the order of the contract."""
        return asdict(self)


def finding(
    code: str,
    file: str,
    detail: str = "",
    *,
    position: int | None = None,
    length: int | None = None,
    base_offset: int | None = None,
    last_offset: int | None = None,
    records: int | None = None,
    severity: str | None = None,
    fix: str | None = None,
) -> Finding:
    """Make a finding of a registered code. Severity and remedy are the registry's unless given. An unknown code is a bug (KeyError)."""
    text = CODES[code]
    return Finding(
        severity=severity or text.severity,
        code=code,
        file=file,
        position=position,
        length=length,
        base_offset=base_offset,
        last_offset=last_offset,
        records=records,
        detail=detail or text.meaning,
        fix=text.fix if fix is None else fix,
    )


def from_json(document: dict[str, object]) -> Finding:
    """Return the finding that `to_json` wrote; other keys are ignored."""
    return Finding(**{field.name: document[field.name] for field in fields(Finding) if field.name in document})  # type: ignore[arg-type]


def has_problems(findings: Iterable[Finding]) -> bool:
    """Whether any of them is an error or a warning."""
    return any(found.is_problem for found in findings)


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Sort by file, position, offset and code, so that the order does not depend on the number of workers."""
    return sorted(
        findings,
        key=lambda found: (
            found.file,
            -1 if found.position is None else found.position,
            -1 if found.base_offset is None else found.base_offset,
            found.code,
            found.detail,
        ),
    )
