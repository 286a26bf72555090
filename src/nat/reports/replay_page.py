"""A replayed update as text: each stage beside its record, what differs first, and what a change moves."""

from nat.reports.text import labelled, one_line, printable, table
from nat.runs.records import epoch_number
from nat.runs.replayed import (
    STAGES,
    Compared,
    Likeness,
    MovedGradients,
    ReplayedRollout,
    ReplayedToken,
    ReplayReport,
    first_beyond,
)


def replay_page(report: ReplayReport | ReplayedRollout) -> str:
    """The page."""
    return printable("\n\n".join(_of_rollout(report) if isinstance(report, ReplayedRollout) else _of_update(report)))


def _of_rollout(report: ReplayedRollout) -> list[str]:
    facts = [
        ("Run", report.run_id),
        ("Rollout", f"{report.example_id}/{report.generation}, seed {report.seed}"),
        ("Weights", f"of optimizer step {report.policy_step}"),
        ("Equal", f"{report.equal_tokens} sampled tokens; their log probabilities by {report.largest_gap:.2g} or less"),
    ]
    if report.recorded is not None and report.replayed is not None:
        facts.append(("Differs", f"row {report.row}, token {report.token}"))
        facts += [("", f"recorded {_token(report.recorded)}"), ("", f"replayed {_token(report.replayed)}")]
    if report.messages is not None:
        facts += zip(("Message", ""), (one_line(text, 100) for text in report.messages), strict=True)
    said = "Every token is the recorded one." if report.row is None else "The rollout is not the recorded one."
    return [labelled(facts), said if report.cause is None else f"{said} Cause: {report.cause}."]


def _token(token: ReplayedToken) -> str:
    if token.token_id is None:
        return "nothing: the row has ended"
    text = token.token_id if token.text is None else f"{token.token_id} {one_line(repr(token.text), 24)}"
    return f"{text}, " + ("in the prompt" if token.logprob is None else f"log probability {token.logprob:.7g}")


def _of_update(report: ReplayReport) -> list[str]:
    begin, end = report.steps
    facts = [
        ("Run", report.run_id),
        ("Update", f"epoch {epoch_number(report.epoch)}, {report.algorithm}, optimizer steps {begin + 1} to {end}"),
        ("Request", _SAME[report.same_request]),
    ]
    rows = [_row(name, [each for each in report.compared if each.stage == name]) for name in STAGES]
    stages = table(("Stage", "like its record", "numbers", "recorded", "replayed"), rows, left=3)
    return [labelled(facts), stages, _said(report), *_changed(report.moved)]


_SAME = {
    True: "by its SHA-256, the one that was trained",
    False: "rebuilt from the journal; its SHA-256 differs, as other settings or rewards would make it",
    None: "rebuilt from the journal; the backend has no SHA-256 of the one that was trained",
}


def _row(name: str, own: list[Compared]) -> tuple[str, ...]:
    """A stage by the first number that is no more alike than any other."""
    if not own:
        return name, "not recorded", "", "", ""
    worst = max(own, key=lambda each: list(Likeness).index(each.likeness))
    if worst.likeness is Likeness.EQUAL:
        return name, worst.likeness, str(len(own)), "", ""
    return name, worst.likeness, worst.name, *(_number(each) for each in (worst.recorded, worst.replayed))


def _number(value: float | str) -> str:
    return one_line(value, 40) if isinstance(value, str) else f"{value:.9g}"


def _said(report: ReplayReport) -> str:
    found, weights = report.first, report.weights
    if found is not None:
        return (
            f"First that differs: {found.stage} ({found.name}): recorded {found.recorded}, replayed {found.replayed}. "
            "What comes before it agrees."
        )
    tensors = "there is no checkpoint after it to compare the weights with"
    if weights is not None:
        alike = weights.tensors - weights.differing
        tensors = f"of the checkpoint after it, {alike} of {weights.tensors} tensors are equal bit by bit"
    rounded = first_beyond(report.compared, Likeness.EQUAL)
    if rounded is None:
        return f"Every number is equal bit by bit; {tensors}."
    return (
        f"Equal up to rounding, from {rounded.stage} ({rounded.name}); {tensors}. Another machine, another "
        "number of threads or another release of torch sums in another order."
    )


def _changed(moved: MovedGradients | None) -> list[str]:
    if moved is None:
        return []
    changes = ", ".join(f"{name} {value}" for name, value in moved.settings.items())
    if moved.failure is not None:
        return [f"With {changes}, the update is refused: {moved.failure}"]
    angle = "" if moved.cosine is None else f"; the cosine of both is {moved.cosine:.4f}"
    sizes = f"the sum of sizes is {moved.sizes[0]:.4g} before, {moved.sizes[1]:.4g} after{angle}"
    said = f"With {changes}, the gradient of {moved.moved} of {moved.tokens} tokens moves; {sizes}."
    metrics = table(("", "before", "after"), [(n, f"{a:.6g}", f"{b:.6g}") for n, (a, b) in moved.metrics.items()])
    rows = [
        (
            f"{each.example_id}/{each.generation}",
            "" if each.message is None else f"conversation {each.conversation}, message {each.message}",
            f"row {each.row}, token {each.token}",
            one_line(repr(each.text or each.token_id), 24),
            f"{each.before:+.4g}",
            f"{each.after:+.4g}",
        )
        for each in moved.most
    ]
    header = ("Rollout", "answer", "place", "token", "before", "after")
    return [said, metrics, *([table(header, rows, left=4)] if rows else [])]
