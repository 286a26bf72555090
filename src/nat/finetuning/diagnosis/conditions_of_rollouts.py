"""Conditions of the rollouts: they fail, their calls are not trained, or their answers are cut off. Pure."""

from collections import Counter
from collections.abc import Mapping
from statistics import fmean

from nat.errors import did_you_mean
from nat.finetuning.answer_statistics import LOST_CALLS
from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.trend import first_third
from nat.finetuning.diagnosis.window import Window
from nat.runs.rollouts import LeftOutCause
from nat.wire.openai_responses import CallStatus
from nat.wire.rewards import equal

LOST_SHARE = 0.05
"""Share of the calls or rollouts that may be kept out of training. Ideal is 0; retries and greedy sub-agents take
some."""
TRUNCATED = "rollout/truncated"
WITHOUT_CALLS = "rollout/without_calls"
CUT_OFF = "cut_off"
_ANOTHER_FORMAT = "If the model's own format of calls is another, set `response_template` of the LLM."
_OF_LOST_CALLS: Mapping[str, str] = {
    CUT_OFF: "Raise the LLM's max_tokens.",
    CallStatus.UNCLOSED: _ANOTHER_FORMAT,
    CallStatus.MALFORMED: _ANOTHER_FORMAT,
    CallStatus.UNKNOWN_TOOL: "Name the offered tools in the prompt.",
    CallStatus.NO_FORMAT: "Take a model whose chat template shows tools and writes calls (`nat fits MODEL` tells), or "
    "describe the calls in the prompt and in `response_template` of the LLM.",
}
"""Why the call of an answer could not be read, and what to do."""
AT_LOWEST = 0.9
"""Share of the truncated rollouts with the lowest score from which on the limit decides the score, if fewer of the
whole ones have it. Where truncated answers score well, too, the limit does no harm; where whole ones score the lowest,
too, it is not the reason."""
RAISE_LIMIT = "Raise the LLM's max_tokens. With mask_truncated_completions such rollouts are kept out of training."
"""Worded so that it is true whether or not that is set, which the epochs do not show."""


@condition(
    title="Rollouts fail",
    measure="share of the rollouts that raise an error, time out or get no score",
    bound=0.1,
    healthy="below {bound:.0%}",
    source="our choice: a few failures only cost time; `finetuning.max_failure_rate` ends a run at 50 %",
    remedy="Fix the first error in the run's failures.txt; a failed rollout is left out, never scored 0.",
    despite_learning=True,
)
def rollouts_failed(window: Window, bound: float) -> Seen | None:
    share = window.left_out(*(cause for cause in LeftOutCause if cause.failure))
    if share <= bound:
        return None
    error = next((f": {each}" for each in window.last.failures if each.error), "")
    return Seen(share, f"{share:.0%} of the rollouts failed{error}")


@condition(
    title="The model's calls are lost",
    measure=(
        "share of the rollouts in which no LLM call was seen, or whose calls have no log probabilities; or "
        "share of the score's variance that the trained tokens do not decide, if no other call was seen"
    ),
    bound=LOST_SHARE,
    healthy="below {bound:.0%}",
    source="0 is ideal (common practice: any dropped call is an alarm)",
    remedy=(
        "Take every client from builder.get_llm (or the base URL and key that the run gives), and serve the "
        "model with log probabilities, as `local` and vLLM do."
    ),
)
def calls_lost(window: Window, bound: float) -> Seen | None:
    unseen = window.mean(WITHOUT_CALLS) or 0.0
    share = max(unseen, window.left_out(LeftOutCause.NO_LOGPROBS), window.per_call("drift/calls_without_logprobs"))
    if share > bound:
        what = "had no LLM call that was seen" if unseen == share else "had calls without log probabilities"
        return Seen(share, f"{share:.0%} of the rollouts {what}")
    hidden = _undecided(window)
    if hidden is not None and not _other_functions(window):
        return Seen(
            hidden,
            f"{hidden:.0%} of the score's variance is between rollouts whose trained tokens are equal, and no other "
            "call was seen: the answers that decide the score are not recorded",
        )
    return None


@condition(
    title="Other calls are trained than those that decide the score",
    measure=(
        "share of the rollouts without a call of `target_functions` and `target_model`; or share of the "
        "score's variance that the trained tokens do not decide"
    ),
    bound=LOST_SHARE,
    healthy="below {bound:.0%}",
    source="0 is ideal",
    remedy=(
        "Set finetuning.target_functions to the functions whose answers decide the score, or to [<workflow>] "
        "for all calls; finetuning.target_model to the LLM that they call."
    ),
    settings="finetuning: {target_functions: [<workflow>], target_model: LLM}",
)
def wrong_target(window: Window, bound: float) -> Seen | None:
    missed = window.left_out(LeftOutCause.NO_TARGET_FUNCTION, LeftOutCause.NO_TARGET_MODEL)
    share = missed - (window.mean(WITHOUT_CALLS) or 0.0)
    functions = _counted(window.last.functions)
    named = f"target_functions: {', '.join(window.facts.target_functions)}; calls of an epoch: {functions}"
    if window.left_out(LeftOutCause.NO_TARGET_MODEL):
        suggestion = did_you_mean(str(window.facts.target_model), window.last.models)
        named = f"target_model: {window.facts.target_model}; calls of an epoch went to: {_counted(window.last.models)}"
        named += f".{suggestion}" if suggestion else ""
    if share > bound:
        return Seen(share, f"{share:.0%} of the rollouts have no call of the target ({named})")
    hidden = _undecided(window)
    if hidden is not None and _other_functions(window):
        return Seen(
            hidden,
            f"{hidden:.0%} of the score's variance is between rollouts whose trained tokens are equal, so other calls "
            f"decide the score ({named})",
        )
    return None


@condition(
    title="The agent changes the sampling",
    measure=(
        "share of the calls that are sampled with top_p, penalties, temperature 0 or at an unreported temperature"
    ),
    bound=LOST_SHARE,
    healthy="below {bound:.0%}",
    source="such answers are not drawn from the distribution that is trained",
    remedy=(
        "Let the agent sample at temperature 1 without top_p, top_k and penalties, or set "
        "finetuning.sampling_in_training: {temperature: 1.0}, which replaces them in training only."
    ),
    settings="finetuning: {sampling_in_training: {temperature: 1.0}}",
)
def sampling_changed(window: Window, bound: float) -> Seen | None:
    untrained = max(window.left_out(LeftOutCause.UNTRAINABLE_SAMPLING), window.per_call("drift/untrainable_calls"))
    share = max(untrained, window.per_call("drift/untempered_calls"))
    if share <= bound:
        return None
    options = Counter({how: count for (_, how), count in window.last.untrainable.items()})
    how = f", sampled with {options.most_common(1)[0][0]}" if options else ""
    effect = "cannot be trained on" if untrained == share else "are trained at another temperature than sampled"
    return Seen(share, f"{share:.0%} of the calls {effect}{how}")


@condition(
    title="Rollouts are too old",
    measure="share of the rollouts that more updates ago sampled than `max_staleness` allows",
    bound=0.5,
    healthy="below {bound:.0%}",
    source="our choice: half of the rollouts train",
    remedy=(
        "Let the server name its weights in each answer (system_fingerprint must be the job's policy_version), or set "
        "finetuning.max_staleness to 0."
    ),
    settings="finetuning: {max_staleness: 0}",
)
def stale_rollouts(window: Window, bound: float) -> Seen | None:
    share = window.left_out(LeftOutCause.TOO_STALE)
    return Seen(share, f"{share:.0%} of the rollouts came from older weights") if share > bound else None


@condition(
    title="A stop word is a part of the answers",
    measure="share of the rollouts with an answer that a stop string ended which is a part of the expected answer",
    bound=LOST_SHARE,
    healthy="below {bound:.0%}",
    source="0 is ideal",
    remedy="Choose another `stop` in the agent's requests, or none: the model ends its answers by itself.",
)
def stopped_inside(window: Window, bound: float) -> Seen | None:
    share = window.where_reported("rollout/stopped_inside")
    if share <= bound:
        return None
    return Seen(share, f"in {share:.0%} of the rollouts, a stop string that is a part of the expected answer ended one")


@condition(
    title="Answers are cut off",
    measure=(
        f"share of the rollouts that hit a token limit, where at least {AT_LOWEST:.0%} of these have the lowest score, "
        "and fewer of the whole answers"
    ),
    bound="max_truncated",
    healthy="below {bound:.0%}",
    source="common practice: alarm above 10 to 20 %",
    remedy=RAISE_LIMIT,
    warns_over=1,
    settings="llms: {LLM: {max_tokens: MAX_TOKENS}}",
)
def truncation(window: Window, bound: float) -> Seen | None:
    shares = window.values(TRUNCATED)
    first = shares[0] if shares and window.since_best else 0.0
    share = (shares[-1] if window.since_best else fmean(shares)) if shares else 0.0
    harm = _harm_of_the_limit(window, window.mean("reward/whole_lowest") if share <= 1 - LOST_SHARE else None)
    if share - first <= bound or not harm:
        return None
    then = f"{first:.0%} did at first" if window.since_best else harm
    return Seen(share - first, f"{share:.0%} of the rollouts hit a token limit, and {then}")


@condition(
    title="All answers to an example are the same",
    measure=(
        "share of the examples whose rollouts all gave the same answers, in the first third of the epochs, of those "
        "that are not always solved"
    ),
    bound=0.5,
    healthy="below {bound:.0%}",
    source="our choice: half of the groups can teach",
    remedy=(
        "Sample at temperature 1 without a fixed seed and without a cache of answers, or start from a model that "
        "varies its answers more."
    ),
)
def no_variety(window: Window, bound: float) -> Seen | None:
    found = [own["rollout/equal_outputs"] for own in first_third(window.metrics) if "rollout/equal_outputs" in own]
    equal, unsolved = fmean(found) if found else 0.0, 1 - window.easy
    share = max(0.0, equal - window.easy)
    if share <= bound * unsolved:
        return None
    return Seen(share, f"in {equal:.0%} of the examples, all rollouts gave the same answers")


def _harm_of_the_limit(window: Window, whole: float | None) -> str:
    """How the scores show that the limit decides them; empty if they do not.

    Of the whole answers, if there are enough of them, a smaller share must have the lowest score. If there are not, a
    score that is always the same shows nothing, unless it is 0.
    """
    cut = window.mean("reward/truncated_lowest")
    if window.constant and not equal([0.0, window.lowest or 0.0]):
        return ""
    if cut is None or cut >= AT_LOWEST:
        others = "" if whole is None else f", of the whole answers {whole:.0%}"
        return f"{1.0 if cut is None else cut:.0%} of these have the lowest score{others}" if _better(whole) else ""
    return "none of their scores depends on the answer" if whole is None and window.score_is_chance else ""


def _better(whole: float | None) -> bool:
    return whole is None or whole < AT_LOWEST


def _counted(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(calls.items()))


def _undecided(window: Window) -> float | None:
    """Share of the variance that the trained tokens do not decide, if they decide none of it and the outputs do."""
    rows = window.row_spread
    if rows.depends_on_output or not window.spread.depends_on_output:
        return None
    return rows.noise_share


def _other_functions(window: Window) -> bool:
    trained = window.mean("rollout/trained_tokens")
    return trained is not None and trained < 1 - LOST_SHARE


@condition(
    title="A prompt of the YAML is not sent",
    measure="prompts of the workflow and its functions whose text is in no call of the last epoch",
    healthy="none",
    source="a prompt that the model never sees changes nothing",
    remedy="Let the agent put it into its messages, or remove the key; `nat runs show latest --epoch 1 --worst 1` "
    "prints what is sent.",
)
def prompt_not_sent(window: Window, _bound: float) -> Seen | None:
    unsent, read = window.facts.unsent, len(window.facts.last_rollouts)
    return Seen(1.0, f"no call of {read} rollouts has the text of {', '.join(unsent)}") if unsent else None


@condition(
    title="A tool fails",
    measure="share of the results of tools that begin as an error",
    bound=0.5,
    healthy="below {bound:.0%}",
    source="our choice: a model may call a tool wrongly, and learns not to",
    remedy="Call the tool by hand with the arguments of a rollout (`nat runs show latest --epoch 1 --worst 1`).",
)
def tool_fails(window: Window, bound: float) -> Seen | None:
    share = window.where_reported("rollout/tool_errors")
    return Seen(share, f"{share:.0%} of the results of tools begin as an error") if share > bound else None


@condition(
    title="The output does not depend on the model",
    measure="share of the examples whose rollouts have one output, though the model's answers differ",
    bound=0.9,
    healthy="below {bound:.0%}",
    source="our choice: a short output is the same now and then",
    remedy="Let the workflow return what the model answers; it may return a text of its own, or one that it keeps.",
)
def output_alone(window: Window, bound: float) -> Seen | None:
    share = window.where_reported("rollout/output_alone")
    if share <= bound or window.easy >= share:
        return None
    return Seen(
        share, f"in {share:.0%} of the examples, all rollouts have one output, though the model's answers differ"
    )


OF_ROLLOUTS = (rollouts_failed, calls_lost, wrong_target, sampling_changed, stale_rollouts, prompt_not_sent, tool_fails)


@condition(
    title="Tool calls cannot be read",
    measure="share of the answers with a tool call that could not be read, unless the cause is `truncation`",
    bound=0.1,
    healthy="below {bound:.0%}",
    source="our choice: a model may write a call wrongly, and learns not to",
    remedy=(
        "`nat runs show latest --epoch 1 --worst 1` prints what the model writes, and docs/start/your_model.md "
        "how calls are read."
    ),
    warns_over=1,
    settings="llms: {LLM: {max_tokens: MAX_TOKENS}}",
)
def tool_calls_unread(window: Window, bound: float) -> Seen | None:
    explained = {"cut_off"} if truncation.found(window) else set[str]()
    found = {cause: round(sum(window.values(f"{LOST_CALLS}{cause}"))) for cause in _OF_LOST_CALLS}
    counts = {cause: count for cause, count in found.items() if count and cause not in explained}
    lost = sum(counts.values())
    if lost <= bound * window.calls:
        return None
    often = sorted(counts, key=lambda cause: -counts[cause])
    advice = " ".join(dict.fromkeys(_OF_LOST_CALLS[cause] for cause in often))
    unknown = counts.pop(CallStatus.NO_FORMAT, 0)
    listed = ", ".join(f"{cause.replace('_', ' ')} {count}" for cause, count in counts.items())
    seen = [f"{lost - unknown} of {window.calls:.0f} answers have a tool call that could not be read: {listed}"]
    none = f"{unknown} of {window.calls:.0f} answers have no call that could be read: no format of this model is known"
    seen = [*(seen if counts else ()), *([none] if unknown else ())]
    return Seen(lost / window.calls, "; ".join(seen), advice, pastes=often[0] == CUT_OFF)


OF_ANSWERS = (stopped_inside, truncation, tool_calls_unread, no_variety, output_alone)
