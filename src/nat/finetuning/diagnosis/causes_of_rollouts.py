"""Causes in the rollouts: they fail, their calls are not seen or not trained, or their answers are cut off. Pure."""

from collections.abc import Iterable, Mapping

from nat.errors import did_you_mean
from nat.finetuning.diagnosis.cause import Symptom, cause
from nat.finetuning.diagnosis.evidence import Evidence
from nat.finetuning.diagnosis.fall import RAISE_LIMIT
from nat.runs.rollouts import LeftOutCause

FAILED_SHARE = 0.1
"""Share of the rollouts; our choice: failures are left out, so a few only cost time."""
LOST_SHARE = 0.05
"""Share of the calls or rollouts that may be kept out of training. Ideal is 0; retries and greedy sub-agents take
some."""
TRUNCATED_SHARE = 0.2
"""Share of the rollouts at their token limit: the alarm level of common practice is 10 to 20 %."""
AT_LOWEST = 0.9
"""Share of the truncated rollouts with the lowest score from which on the limit decides the score. Where truncated
answers score well, too, the limit does no harm."""
EQUAL_OUTPUTS = 0.5
"""Share of the examples whose rollouts are all alike: the healthy level of groups without a difference."""
STALE_SHARE = 0.5

_FAILURES = tuple(cause for cause in LeftOutCause if cause.failure)


@cause(
    title="Rollouts fail",
    measure="share of the rollouts that raise an error, time out or get no score",
    healthy=f"below {FAILED_SHARE:.0%}",
    source="our choice; `finetuning.max_failure_rate` ends a run at 50 %",
    remedy="Fix the first error in the run's failures.txt; a failed rollout is left out, never scored 0.",
)
def rollouts_failed(evidence: Evidence) -> Symptom | None:
    share = _left_out(evidence, _FAILURES)
    if share <= FAILED_SHARE:
        return None
    return Symptom(share, f"{share:.0%} of the rollouts failed" + (f": {evidence.error}" if evidence.error else ""))


@cause(
    title="The model's calls are lost",
    measure=(
        "share of the rollouts in which no LLM call was seen, or whose calls have no log probabilities; or "
        "share of the score's variance that the trained tokens do not decide, if no other call was seen"
    ),
    healthy=f"below {LOST_SHARE:.0%}",
    source="0 is ideal (common practice: any dropped call is an alarm)",
    remedy=(
        "Take every client from builder.get_llm (or the base URL and key that the run gives), and serve the "
        "model with log probabilities, as `local` and vLLM do."
    ),
)
def calls_lost(evidence: Evidence) -> Symptom | None:
    unseen = evidence.without_calls
    share = max(unseen, _left_out(evidence, [LeftOutCause.NO_LOGPROBS]), evidence.without_logprobs)
    if share > LOST_SHARE:
        what = "had no LLM call that was seen" if unseen == share else "had calls without log probabilities"
        return Symptom(share, f"{share:.0%} of the rollouts {what}")
    hidden = _undecided(evidence)
    if hidden is not None and not _other_functions(evidence):
        return Symptom(
            hidden,
            f"{hidden:.0%} of the score's variance is between rollouts whose trained tokens are equal, and no other "
            "call was seen: the answers that decide the score are not recorded",
        )
    return None


@cause(
    title="Other calls are trained than those that decide the score",
    measure=(
        "share of the rollouts without a call of `target_functions` and `target_model`; or share of the "
        "score's variance that the trained tokens do not decide"
    ),
    healthy=f"below {LOST_SHARE:.0%}",
    source="0 is ideal",
    remedy=(
        "Set finetuning.target_functions to the functions whose answers decide the score, or to [<workflow>] "
        "for all calls; finetuning.target_model to the LLM that they call."
    ),
)
def wrong_target(evidence: Evidence) -> Symptom | None:
    missed = _left_out(evidence, [LeftOutCause.NO_TARGET_FUNCTION, LeftOutCause.NO_TARGET_MODEL])
    share = missed - evidence.without_calls
    functions = _counted(evidence.functions)
    named = f"target_functions: {', '.join(evidence.target_functions)}; calls of an epoch: {functions}"
    if evidence.left_out.get(LeftOutCause.NO_TARGET_MODEL):
        suggestion = did_you_mean(str(evidence.target_model), evidence.models)
        named = f"target_model: {evidence.target_model}; calls of an epoch went to: {_counted(evidence.models)}"
        named += f".{suggestion}" if suggestion else ""
    if share > LOST_SHARE:
        return Symptom(share, f"{share:.0%} of the rollouts have no call of the target ({named})")
    hidden = _undecided(evidence)
    if hidden is not None and _other_functions(evidence):
        return Symptom(
            hidden,
            f"{hidden:.0%} of the score's variance is between rollouts whose trained tokens are equal, so other calls "
            f"decide the score ({named})",
        )
    return None


@cause(
    title="The agent changes the sampling",
    measure=(
        "share of the calls that are sampled with top_p, penalties, temperature 0 or at an unreported temperature"
    ),
    healthy=f"below {LOST_SHARE:.0%}",
    source="such answers are not drawn from the distribution that is trained",
    remedy=(
        "Let the agent sample at temperature 1 without top_p, top_k and penalties, or set "
        "finetuning.sampling_in_training: {temperature: 1.0}, which replaces them in training only."
    ),
)
def sampling_changed(evidence: Evidence) -> Symptom | None:
    untrained = max(_left_out(evidence, [LeftOutCause.UNTRAINABLE_SAMPLING]), evidence.untrainable_calls)
    share = max(untrained, evidence.untempered_calls)
    if share <= LOST_SHARE:
        return None
    how = f", sampled with {evidence.sampling}" if evidence.sampling else ""
    effect = "cannot be trained on" if untrained == share else "are trained at another temperature than sampled"
    return Symptom(share, f"{share:.0%} of the calls {effect}{how}")


@cause(
    title="Rollouts are too old",
    measure="share of the rollouts that more updates ago sampled than `max_staleness` allows",
    healthy=f"below {STALE_SHARE:.0%}",
    source="our choice: half of the rollouts train",
    remedy="Set finetuning.max_staleness to 0, or let the server name its weights in each answer.",
)
def stale_rollouts(evidence: Evidence) -> Symptom | None:
    share = _left_out(evidence, [LeftOutCause.TOO_STALE])
    return Symptom(share, f"{share:.0%} of the rollouts came from older weights") if share > STALE_SHARE else None


@cause(
    title="Answers are cut off",
    measure=(
        f"share of the rollouts that hit a token limit, where at least {AT_LOWEST:.0%} of these have the lowest score"
    ),
    healthy=f"below {TRUNCATED_SHARE:.0%}",
    source="common practice: alarm above 10 to 20 %",
    remedy=RAISE_LIMIT,
)
def truncation(evidence: Evidence) -> Symptom | None:
    share, lowest = evidence.truncated, evidence.truncated_lowest
    if share <= TRUNCATED_SHARE or lowest < AT_LOWEST:
        return None
    return Symptom(
        share, f"{share:.0%} of the rollouts hit a token limit, and {lowest:.0%} of these have the lowest score"
    )


@cause(
    title="All answers to an example are the same",
    measure="share of the examples whose rollouts all gave the same answers, in the first third of the epochs",
    healthy=f"below {EQUAL_OUTPUTS:.0%}",
    source="as for groups without a difference",
    remedy="Sample at temperature 1 without a fixed seed, or start from a model that varies its answers more.",
)
def no_variety(evidence: Evidence) -> Symptom | None:
    share = evidence.equal_outputs
    if share <= EQUAL_OUTPUTS:
        return None
    return Symptom(share, f"in {share:.0%} of the examples, all rollouts gave the same answers")


def _left_out(evidence: Evidence, causes: Iterable[LeftOutCause]) -> float:
    return sum(evidence.left_out.get(cause, 0.0) for cause in causes)


def _counted(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(calls.items()))


def _undecided(evidence: Evidence) -> float | None:
    """Share of the variance that the trained tokens do not decide, if they decide none of it and the outputs do."""
    rows = evidence.row_spread
    if rows.depends_on_output or not evidence.spread.depends_on_output:
        return None
    return rows.noise_share


def _other_functions(evidence: Evidence) -> bool:
    return evidence.trained_tokens is not None and evidence.trained_tokens < 1 - LOST_SHARE


CAUSES_OF_ROLLOUTS = (
    rollouts_failed,
    calls_lost,
    wrong_target,
    sampling_changed,
    stale_rollouts,
)

CAUSES_OF_ANSWERS = (
    truncation,
    no_variety,
)
