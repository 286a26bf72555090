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
    window, change = diagnosis.window, diagnosis.window.change
    reward = "" if change is None else f" The mean reward was {change}."
    if diagnosis.healthy:
        judged = "has learned" if window.learned else "has no number out of its healthy range"
        return f"Healthy: the run {judged}.{reward}"
    rises = window.improved or (change is not None and change.rose)
    judged = "Rising, with a caveat." if window.learned else "Rising slowly." if rises else "Not learning."
    paragraphs = (
        f"{number}. {each.title} ({each.share:.0%} of the signal)\n"
        f"   seen     {each.seen}\n   healthy  {each.healthy}\n   change   {each.remedy}"
        for number, each in enumerate(diagnosis.findings, 1)
    )
    return "\n\n".join([f"{judged}{reward}", *paragraphs])
