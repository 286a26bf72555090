"""The page of `nat probe`."""

from collections.abc import Iterator

from nat.finetuning.probe import ProbeReport
from nat.reports.text import labelled, printable
from nat.runs.plot import duration


def probe_page(report: ProbeReport) -> str:
    """The whole report; the model's text in it cannot control the terminal."""
    lines = [report.sentence]
    for finding in report.findings:
        lines += [f"- {finding.title}: {finding.seen} (healthy: {finding.healthy}).", f"  → {finding.remedy}"]
    if not report.findings:  # each of these has its own
        lines.append(f"Next: {report.next_step}")
    head = f"Probe of {report.config_file}: {report.num_rollouts} rollouts, nothing trained"
    return printable("\n\n".join([head, labelled(_facts(report)), "\n".join(lines)]))


def _facts(report: ProbeReport) -> Iterator[tuple[str, str]]:
    yield from (("LLM", f"{name}: {where}" if where else name) for name, where in report.llms.items())
    yield from (("Warning", text) for text in report.warnings)
    yield "Time", f"{duration(report.seconds)} for the rollouts"
    yield "Cut off", f"{report.truncated:.0%} of the rollouts hit a token limit"
    yield from (("Left out", f"{count} x {cause}") for cause, count in report.left_out.items())
    yield from (("", f"for example {each.error}") for each in report.failures if each.error)
    if report.mean_score is not None:
        scores = f"mean {report.mean_score:.3f}, from {report.lowest:g} to {report.highest:g}"
        yield "Score", f"{report.reward}: {scores}"
    if report.interval is not None:
        low, high = report.interval
        share = f"{report.num_differing / report.num_groups:.0%}, 95% interval {low:.0%} to {high:.0%}"
        yield "Groups", f"{report.num_differing} of {report.num_groups} have a difference in reward ({share})"
