"""The rows of a group in each format. Pure.

Column names are those of TRL's dataset formats; scores of pairs are named as in UltraFeedback. Trainers put loss on
whole completions, so a completion of `preference` and `kto` is one answer, and no tool's result is trained.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isclose
from statistics import fmean
from typing import Any, Literal

from nat.preferences.pairs import PairRule, SkipCause
from nat.preferences.parting import first_parting
from nat.trajectory_files.generations import Generation, Group, LeftOut, TextConversation, masked

Form = Literal["grpo", "preference", "kto", "messages"]
Row = dict[str, Any]

NO_TOKENS = "its messages and its tokens do not match"
_UNPARTED: Mapping[str, str] = {
    SkipCause.EQUAL_RESPONSES: "its answers are equal",
    SkipCause.DIFFERENT_PROMPTS: "its prompts differ before its answers do",
}
"""What is said of rollouts, which are no candidates of a turn."""


@dataclass(frozen=True)
class RowOptions:
    """What the rows of a file are made of."""

    form: Form = "grpo"
    tokens: bool = False
    """Add the token ids, and the sampler's log probabilities."""
    pairs: PairRule = field(default_factory=PairRule)
    """Which rollouts of a group are pairs."""
    min_reward: float | None = None
    """From this reward on, `kto` labels an answer as good, and `messages` has the rollout."""


@dataclass
class Made:
    """The rows of a group, and what is not in them."""

    rows: list[Row] = field(default_factory=list)
    left_out: Counter[LeftOut] = field(default_factory=Counter)

    def leave_out(self, what: str, why: str) -> None:
        self.left_out[LeftOut(what, why)] += 1


def rows_of(group: Group, options: RowOptions) -> Made:
    """The rows of a group in the format of the options."""
    made = FORMATS[options.form](group, options)
    name = f"{group.phase}/{group.epoch}/{group.example_id}"
    common = {"group": name, "example_id": group.example_id, "epoch": group.epoch}
    return Made([common | row for row in made.rows], made.left_out)


def _grpo(group: Group, options: RowOptions) -> Made:
    """Each conversation of each rollout: what came before the first answer, and all that followed."""
    made = Made()
    for generation, conversation in _each_conversation(group.generations, options, made):
        first = conversation.sampled[0]
        row = _completion(generation, conversation, first, None)
        row |= {"generation": generation.number}
        if options.tokens:
            row |= _completion_tokens(conversation, 0, -1)
        made.rows.append(row)
    return made


def _preference(group: Group, options: RowOptions) -> Made:
    """Pairs of answers to the same prompt, from rollouts whose rewards differ."""
    rows, refused, _ = options.pairs.choose(group.rewards, partial(_pair, group, options))
    made = Made(rows)
    if group.generations and not rows and not refused:
        made.leave_out("group", "no two of its rewards differ" + (" by the margin" if options.pairs.margin else ""))
    for _, _, cause in refused:
        made.leave_out("pair", _UNPARTED.get(cause, cause))
    return made


def _pair(group: Group, options: RowOptions, first: int, second: int) -> Row | str:
    """The row of the better and the worse one, or why there is none."""
    better, worse = group.generations[first], group.generations[second]
    parted = first_parting(better.marked, worse.marked, whole=True)
    if isinstance(parted, SkipCause):
        return parted
    chosen, rejected = better.conversations[parted.own], worse.conversations[parted.other]
    row = {
        "prompt": chosen.messages[: parted.at],
        "chosen": [chosen.messages[parted.at]],
        "rejected": [rejected.messages[parted.at]],
        "tools": chosen.tools,
        "score_chosen": better.reward,
        "score_rejected": worse.reward,
    }
    if not options.tokens:
        return row
    if chosen.row is None or rejected.row is None:
        return NO_TOKENS
    turn = chosen.sampled.index(parted.at)
    good, bad = (_completion_tokens(each, turn, turn) for each in (chosen, rejected))
    if good["prompt_ids"] != bad["prompt_ids"]:
        return "its tokens differ before its messages do"
    return row | {
        "prompt_ids": good["prompt_ids"],
        "chosen_ids": good["completion_ids"],
        "rejected_ids": bad["completion_ids"],
        "chosen_logprobs": good["logprobs"],
        "rejected_logprobs": bad["logprobs"],
    }


def _kto(group: Group, options: RowOptions) -> Made:
    """Each answer, labelled by the reward of its rollout."""
    made = Made()
    bound = options.min_reward
    mean = fmean(group.rewards) if group.rewards else 0.0
    for generation, conversation in _each_conversation(group.generations, options, made):
        if bound is None and isclose(generation.reward, mean):
            made.leave_out("conversation", "its reward is the mean of its group, so it is neither good nor bad")
            continue
        label = generation.reward > mean if bound is None else generation.reward >= bound
        for turn, place in enumerate(conversation.sampled):
            row = _completion(generation, conversation, place, place + 1) | {"label": label}
            if options.tokens:
                tokens = _completion_tokens(conversation, turn, turn)
                row |= {name: tokens[name] for name in ("prompt_ids", "completion_ids", "logprobs")}
            made.rows.append(row)
    return made


def _messages(group: Group, options: RowOptions) -> Made:
    """Whole conversations of the best rollout, or of all that are good enough."""
    made = Made()
    if options.min_reward is not None:
        good = [each for each in group.generations if each.reward >= options.min_reward]
        why = "its reward is below --min_reward"
    else:
        good = sorted(group.generations, key=lambda each: -each.reward)[:1]
        why = "another one of its group is the best"
    for _ in range(len(group.generations) - len(good)):
        made.leave_out("rollout", why)
    for generation, conversation in _each_conversation(good, options, made):
        row: Row = {
            "messages": conversation.messages,
            "tools": conversation.tools,
            "reward": generation.reward,
            "generation": generation.number,
        }
        if options.tokens and conversation.row is not None:
            end = conversation.spans[-1].stop
            mask, logprobs = masked(conversation.spans, 0, end)
            row |= {"input_ids": conversation.row.token_ids[:end], "assistant_masks": mask, "logprobs": logprobs}
        made.rows.append(row)
    return made


def _each_conversation(
    generations: Sequence[Generation], options: RowOptions, made: Made
) -> list[tuple[Generation, TextConversation]]:
    """The conversations of some generations; those without tokens are left out if tokens are wanted."""
    found = []
    for generation in generations:
        for conversation in generation.conversations:
            if not conversation.sampled:
                made.leave_out("conversation", "it has no answer")
            elif options.tokens and conversation.row is None:
                made.leave_out("conversation", NO_TOKENS)
            else:
                found.append((generation, conversation))
    return found


def _completion(generation: Generation, conversation: TextConversation, begin: int, end: int | None) -> Row:
    return {
        "prompt": conversation.messages[:begin],
        "completion": conversation.messages[begin:end],
        "tools": conversation.tools,
        "reward": generation.reward,
    }


def _completion_tokens(conversation: TextConversation, first: int, last: int) -> Row:
    """The tokens from the answer of one turn to the end of that of another."""
    row, spans = conversation.row, conversation.spans
    assert row is not None
    begin, end = spans[first].start, spans[last].stop
    mask, logprobs = masked(spans, begin, end)
    return {
        "prompt_ids": row.token_ids[:begin],
        "completion_ids": row.token_ids[begin:end],
        "env_mask": mask,
        "logprobs": logprobs,
    }


FORMATS: Mapping[Form, Callable[[Group, RowOptions], Made]] = {
    "grpo": _grpo,
    "preference": _preference,
    "kto": _kto,
    "messages": _messages,
}
