"""The diagnosis as text. Pure."""

from collections.abc import Sequence
from pathlib import Path

from nat.finetuning.diagnosis.catalogue import Diagnosis
from nat.runs.records import Finding

SHOWN = 2
"""Causes at the end of a run; `nat diagnose` shows all."""


def explanation(findings: Sequence[Finding], run_dir: Path) -> list[str]:
    """The first causes, one paragraph each, and the command that shows all; empty without a cause."""
    if not findings:
        return []
    return [*map(str, findings[:SHOWN]), f"All causes, with their numbers: nat diagnose {run_dir}"]


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """All causes with their numbers, in the order of likelihood."""
    window = diagnosis.window
    trend, shortened, waiting = window.trend, window.shortened, window.waiting
    facts = "" if trend is None else f" The mean reward was {trend}."
    facts += f"\n\nShortened: {shortened}." if shortened else ""
    facts += f"\n\nWaiting: {waiting}." if waiting else ""
    if diagnosis.healthy:
        judged = "has learned" if window.has_learned else "has no number out of its healthy range"
        return f"Healthy: the run {judged}.{facts}"
    rises = window.improved or (trend is not None and trend.rose)
    judged = "Rising, with a caveat." if window.has_learned else "Rising slowly." if rises else "Not learning."
    head = f"{judged}{facts}"
    return "\n\n".join([head, *(_paragraph(number, each) for number, each in enumerate(diagnosis.findings, 1))])


def _paragraph(number: int, finding: Finding) -> str:
    return "\n".join(
        [
            f"{number}. {finding.title} ({finding.share:.0%} of the signal)",
            f"   seen     {finding.seen}",
            f"   healthy  {finding.healthy}",
            f"   change   {finding.remedy}",
            *(f"   {'paste' if at == 0 else '':8} {line}" for at, line in enumerate(finding.settings.splitlines())),
        ]
    )
