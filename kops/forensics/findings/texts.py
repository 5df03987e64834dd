"""The texts of one finding code."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CodeText:
    """One code: severity, the sentence, the consequence in Kafka, the remedy (`fix` of a finding)."""

    code: str
    severity: str
    meaning: str
    consequence: str
    fix: str
