"""Conditions of the rollouts: they fail, their calls are not trained, or their answers are alike or cut off. Pure."""

from collections import Counter
from collections.abc import Mapping
from statistics import fmean

from nat.errors import did_you_mean
from nat.finetuning.diagnosis.condition import Seen, condition
from nat.finetuning.diagnosis.window import EASY, Window
from nat.finetuning.metrics import LOST_CALLS, SAME_ANSWER, SAME_SCORE
from nat.runs.records import after_epoch, epoch_number
from nat.runs.rollouts import LeftOutCause
from nat.wire.openai_responses import CallStatus
from nat.wire.rewards import equal

LOST_SHARE = 0.05
"""Share of the calls or rollouts that may be kept out of training. Ideal is 0; retries and greedy sub-agents take
some."""
HALF = 0.5
ALIKE = 0.8
"""Share of the answers to different prompts that may be the same."""
AT_LOWEST = 0.9
"""Share of the truncated rollouts with the lowest score from which on the limit decides the score, if fewer of the
whole ones have it."""
_ANOTHER_FORMAT = "If the model's own format of calls is another, set `response_template` of the LLM."
_OF_LOST_CALLS: Mapping[str, str] = {
    "cut_off": "Raise the LLM's max_tokens.",
    CallStatus.UNCLOSED: _ANOTHER_FORMAT,
    CallStatus.MALFORMED: _ANOTHER_FORMAT,
    CallStatus.UNKNOWN_TOOL: "Name the offered tools in the prompt.",
    CallStatus.NO_FORMAT: "Take a model whose chat template shows tools and writes calls (`nat fits MODEL` tells), or "
    "describe the calls in the prompt and in `response_template` of the LLM.",
}
"""Why the call of an answer could not be used, and what to do."""


@condition(
    title="Rollouts or tools fail",
    bound=0.1,
    healthy="failed rollouts below {bound:.0%}, errors among the results of tools below half",
    remedy="Fix the first error in failures.txt, or call the tool by hand with the arguments of a rollout "
    "(`nat runs show latest --epoch 1 --worst 1`); a failed rollout is left out, never scored 0.",
    despite_learning=True,
)
def rollouts_failed(window: Window, bound: float) -> Seen | None:
    share = window.left_out(*(cause for cause in LeftOutCause if cause.failure))
    tools = window.mean("rollout/tool_errors") or 0.0
    if share > bound:
        error = next((f": {each}" for each in window.last.failures if each.error), "")
        return Seen(share, f"{share:.0%} of the rollouts failed{error}")
    return Seen(tools, f"{tools:.0%} of the results of tools begin as an error") if tools > HALF else None


@condition(
    title="Answers come from a cache",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the rollouts without a call and with the output of another one of their example",
    remedy="Turn off the cache of the agent, its framework or a proxy in training and validation, so that each rollout "
    "samples an answer of its own.",
)
def answers_cached(window: Window, bound: float) -> Seen | None:
    share, unseen = window.mean("rollout/cached") or 0.0, window.values("rollout/without_calls")
    if share > bound:
        return Seen(share, f"{share:.0%} of the rollouts have no LLM call, and the output of one that had")
    if window.unfinished and unseen and min(unseen) < HALF and unseen[-1] == 1:
        return Seen(1.0, "no rollout of the last epoch has an LLM call, and those of earlier epochs had")
    return None


@condition(
    title="The model's calls are lost",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the rollouts without a call that was seen, or with calls without log probabilities",
    remedy="Take every client from builder.get_llm (or the base URL and key that the run gives), turn off caches of "
    "answers, and serve the model with log probabilities, as `local` and vLLM do.",
)
def calls_lost(window: Window, bound: float) -> Seen | None:
    unseen = (window.mean("rollout/without_calls") or 0.0) - (window.mean("rollout/cached") or 0.0)
    share = max(unseen, window.left_out(LeftOutCause.NO_LOGPROBS), window.per_call("drift/calls_without_logprobs"))
    if share > bound:
        what = "had no LLM call that was seen" if unseen == share else "had calls without log probabilities"
        return Seen(share, f"{share:.0%} of the rollouts {what}")
    hidden = 0.0 if _other_functions(window) else _undecided(window)
    if not hidden:
        return None
    return Seen(hidden, f"{_hidden(hidden)}, and no other call was seen: the answers that decide it are not recorded")


@condition(
    title="Other calls are trained than those that decide the score",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the rollouts without a call of `target_functions` and `target_model`, and the "
    "trained tokens decide the score",
    remedy="Set finetuning.target_functions to the functions whose answers decide the score, or to [<workflow>] for "
    "all calls; finetuning.target_model to the LLM that they call.",
)
def wrong_target(window: Window, bound: float) -> Seen | None:
    by_model = window.left_out(LeftOutCause.NO_TARGET_MODEL)
    share = window.left_out(LeftOutCause.NO_TARGET_FUNCTION) + by_model - (window.mean("rollout/without_calls") or 0.0)
    named = f"target_functions: {', '.join(window.target_functions)}; calls: {_counted(window.last.functions)}"
    if by_model:
        meant = did_you_mean(str(window.target_model), window.last.models)
        named = f"target_model: {window.target_model}; calls went to: {_counted(window.last.models)}.{meant}"
    if share > bound:
        return Seen(share, f"{share:.0%} of the rollouts have no call of the target ({named.removesuffix('.')})")
    hidden = _undecided(window) if _other_functions(window) else 0.0
    if not hidden:
        return None
    return Seen(hidden, f"{_hidden(hidden)}, so other calls decide it ({named})")


@condition(
    title="The agent changes the sampling",
    bound=LOST_SHARE,
    healthy="below {bound:.0%} of the calls with top_p, penalties, temperature 0 or an unreported temperature",
    remedy="Let the agent sample at temperature 1 without top_p, top_k and penalties, or set "
    "finetuning.sampling_in_training: {temperature: 1.0}, which replaces them in training only.",
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
    title="The answers are nearly all alike",
    bound="max_entropy_drop",
    healthy=f"below {ALIKE:.0%} of the answers to different prompts the same, or their score near the highest; and a "
    "fall of the entropy per token by less than {bound:.0%} from its highest value, in the mean of three epochs",
    remedy="If rows have answers, imitate these first (`nat runs imitate latest` writes the file and the YAML). Go on "
    "from a checkpoint before; lower the learning rate, or raise epsilon_high or beta (the KL divergence to the "
    "starting model).",
    warns_over=21,
    despite_learning=True,
    without_rollouts=True,
)
def answers_alike(window: Window, bound: float) -> Seen | None:
    found = list[tuple[float, float, str]]()
    for epoch in window.epochs[-1:]:
        if SAME_SCORE in epoch.metrics and epoch.played and not epoch.relative:
            seen = f"of the answers in epoch {epoch_number(epoch.epoch)} are, or begin, the same"
            found.append((epoch.metrics[SAME_ANSWER], window.height(epoch.metrics[SAME_SCORE]), seen))
    for validation in window.validations[-1:]:
        if (common := validation.commonest) is not None and common.score is not None:
            seen = f"of the held-out answers {after_epoch(validation.epoch)} are, or begin, the same: {common.text!r}"
            found.append((common.share, window.height(common.score), seen))
    if alike := [each for each in found if each[0] > ALIKE and each[1] <= EASY]:
        share, height, seen = max(alike)
        return Seen(share * (1 - height), f"{share:.0%} {seen}")
    values = window.values("train/entropy")
    over = min(3, max(1, len(values) // 3))  # the entropy of one epoch depends on its examples
    means = [fmean(values[max(0, end - over) : end]) for end in range(1, len(values) + 1)]
    if (window.learned and not window.since_best) or not means or means[-1] >= (1 - bound) * max(means):
        return None
    return Seen(1 - means[-1] / max(means), f"the entropy per token fell from {max(means):.3f} to {means[-1]:.3f}")


@condition(
    title="Answers are cut off",
    bound="max_truncated",
    healthy="below {bound:.0%} of the rollouts at a token limit, or most of these above the lowest score",
    remedy="Raise the LLM's max_tokens. With mask_truncated_completions such rollouts are kept out of training.",
    warns_over=1,
)
def truncation(window: Window, bound: float) -> Seen | None:
    share, cut = window.mean("rollout/truncated") or 0.0, window.mean("reward/truncated_lowest")
    whole = window.mean("reward/whole_lowest") if share <= 1 - LOST_SHARE else None
    if share <= bound or (window.constant and not equal([0.0, window.lowest])):
        return None
    if (cut is not None and cut < AT_LOWEST) or (whole is not None and whole >= AT_LOWEST):
        return None
    others = "" if whole is None else f", of the whole answers {whole:.0%}"
    lowest = f"{1.0 if cut is None else cut:.0%} of these have the lowest score{others}"
    return Seen(share, f"{share:.0%} of the rollouts hit a token limit, and {lowest}")


@condition(
    title="Tool calls cannot be used",
    bound=0.1,
    healthy="below {bound:.0%} of the answers, unless the cause is `truncation`",
    remedy="`nat runs show latest --epoch 1 --worst 1` prints what the model writes; see start/your_model of the docs.",
    warns_over=1,
)
def tool_calls_unread(window: Window, bound: float) -> Seen | None:
    explained = {"cut_off"} if truncation.found(window) else set()
    found = {cause: round(sum(window.values(f"{LOST_CALLS}{cause}"))) for cause in _OF_LOST_CALLS.keys() - explained}
    lost, most = sum(found.values()), max(found, key=lambda cause: found[cause])
    if lost <= bound * window.calls:
        return None
    listed = ", ".join(f"{cause.replace('_', ' ')} {count}" for cause, count in sorted(found.items()) if count)
    seen = f"{lost} of {window.calls:.0f} answers have a tool call that could not be used: {listed}"
    return Seen(lost / window.calls, seen, _OF_LOST_CALLS[most])


OF_ROLLOUTS = (rollouts_failed, answers_cached, calls_lost, wrong_target, sampling_changed)
OF_ANSWERS = (answers_alike, truncation, tool_calls_unread)


def _counted(calls: Mapping[str, int]) -> str:
    return ", ".join(f"{name} ({count})" for name, count in sorted(calls.items()))


def _undecided(window: Window) -> float:
    """Share of the variance that the trained tokens do not decide, and the outputs do; 0 if they decide most of it."""
    hidden = window.noise("row_") or 0.0
    return hidden if hidden - (window.noise() or 0.0) > HALF else 0.0


def _hidden(share: float) -> str:
    return f"{share:.0%} of the score's variance is between rollouts whose trained tokens are equal"


def _other_functions(window: Window) -> bool:
    trained = window.mean("rollout/trained_tokens")
    return trained is not None and trained < 1 - LOST_SHARE
