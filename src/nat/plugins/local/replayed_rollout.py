"""Play a recorded rollout again, with its seed and its weights, and find the first token that differs."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from itertools import zip_longest
from typing import Any

from nat.data_models.finetuning import FinetuneRunConfig
from nat.errors import JournalError, one_of
from nat.finetuning.plan import Plan, read_examples, resolve
from nat.finetuning.trajectories.calls import Target, calls_of
from nat.finetuning.trajectories.messages import ConversationGraph, text_of
from nat.finetuning.workflow_sessions import opened_remote, training_session
from nat.plugins.local.llm import LocalModelConfig
from nat.plugins.local.recorded_update import resumed_folder
from nat.plugins.local.replay import with_texts
from nat.runs.journal import Journal
from nat.runs.replayed import IN_FLOAT32, IN_LESS, ReplayedRollout, ReplayedToken
from nat.runs.rollouts import RolloutRecord
from nat.wire.serving import output_place
from nat.wire.training import TrainingRow

_EXACT, _ROUGH = IN_FLOAT32.logprob, IN_LESS.logprob
"""The largest difference of two log probabilities by rounding, in float32 and in bfloat16."""
_BOTH = ("recorded", "replayed")


async def replay_rollout(journal: Journal, record: RolloutRecord, given: FinetuneRunConfig) -> ReplayedRollout:
    """Play it alone; `given` are the options that the run began with.

    Raises:
        BackendError: the model's server does not start.
        ConfigError: the configuration is wrong.
        JournalError: its answers, example or weights are not there.

    """
    steps = _steps(record)
    plan = await resolve(given)
    items, _ = await read_examples(plan.config, given.dataset, plan.config)
    item = next((each for each in items if str(each.id) == record.example_id), None)
    if item is None:
        raise JournalError(f"the dataset has no example {record.example_id!r} any more")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(resumed_folder(journal, _by_place(plan, steps)))
        builder = await stack.enter_async_context(plan.opened(folder))
        session = training_session(plan, builder, await opened_remote(stack, plan, builder))
        rollout = await session.run(item, seed=record.seed, generation=record.generation)
    target = Target(functions=plan.finetuning.target_functions, model=plan.finetuning.target_model)
    graph = ConversationGraph(target.select(calls_of(rollout.steps)).calls)
    replayed = [merged.row for merged in graph.rows]
    messages = [message for thread in graph.conversations for message in thread.messages]
    found = _compared(record.rows, replayed)
    if "row" in found:
        found |= zip(_BOTH, with_texts(journal, [found[name] for name in _BOTH]), strict=True)
        found["messages"] = _first_message(record.messages, messages)
    cause = f"the rollout failed: {rollout.error}" if rollout.failed else _cause(found)
    return ReplayedRollout(
        run_id=journal.info().run_id,
        example_id=record.example_id,
        generation=record.generation,
        seed=record.seed,
        policy_step=max(steps.values()),
        cause=cause,
        **found,
    )


def _steps(record: RolloutRecord) -> dict[str, int]:
    """The optimizer step of the weights that sampled the answers, by the model's name."""
    versions = {str(span.policy_version).rpartition("@")[::2] for row in record.rows for span in row.spans}
    steps = {name: int(step) for name, step in versions if step.isdecimal()}
    if not steps or len(steps) != len(versions):
        raise JournalError(
            f"the answers of {record.example_id}/{record.generation} are not recorded with one version of the weights",
            hint="choose a rollout with exact tokens: `nat runs show RUN --epoch N --example ID --tokens`",
        )
    return steps


def _by_place(plan: Plan, steps: Mapping[str, int]) -> dict[str, int]:
    """The steps by the folder that each trained LLM has in the run's folder."""
    blocks = {llm: plan.config.llms[llm] for llm in plan.students}
    names = {block.served_name: llm for llm, block in blocks.items() if isinstance(block, LocalModelConfig)}
    if other := sorted(steps.keys() - names.keys()):
        raise JournalError(
            f"the answers are of the model {other[0]!r}, and this file trains {one_of(names)}",
            hint="restore the configuration that the run began with",
        )
    return {output_place(names[name], several=len(blocks) > 1): step for name, step in steps.items()}


def _compared(recorded: Sequence[TrainingRow], replayed: Sequence[TrainingRow]) -> dict[str, Any]:
    """The first token that differs, row after row, and how near the sampled ones before it are."""
    equal, largest = 0, 0.0
    for number, rows in enumerate(zip_longest(recorded, replayed)):
        for at, (one, other) in enumerate(zip_longest(*map(_tokens, rows), fillvalue=ReplayedToken())):
            if one.token_id != other.token_id:
                found = {"row": number, "token": at, "recorded": one, "replayed": other}
                return found | {"equal_tokens": equal, "largest_gap": largest}
            if one.logprob is not None and other.logprob is not None:
                equal, largest = equal + 1, max(largest, abs(one.logprob - other.logprob))
    return {"equal_tokens": equal, "largest_gap": largest}


def _tokens(row: TrainingRow | None) -> Iterator[ReplayedToken]:
    if row is not None:
        logprobs = {at: x for span in row.spans for at, x in enumerate(span.logprobs or (), span.start)}
        for at, token_id in enumerate(row.token_ids):
            yield ReplayedToken(token_id=token_id, logprob=logprobs.get(at))


def _first_message(recorded: Sequence[dict[str, Any]], replayed: Sequence[dict[str, Any]]) -> tuple[str, str] | None:
    texts = [[f"{message.get('role')}: {text_of(message)}" for message in each] for each in (recorded, replayed)]
    return next(((one, other) for one, other in zip_longest(*texts, fillvalue="nothing") if one != other), None)


def _cause(found: dict[str, Any]) -> str | None:
    """Why the rollout is another one, as far as its tokens tell; None if it is not."""
    gap, equal = found["largest_gap"], found["equal_tokens"]
    one, other = (found[name].logprob if name in found else None for name in _BOTH)
    if gap > _EXACT:
        return "other weights" + (", or rounding in bfloat16" if gap <= _ROUGH else "")
    if "row" not in found:
        return None
    if one is None and other is None:
        return "another prompt, " + ("of other messages" if found["messages"] else "of the same messages")
    if not equal:
        return "not known, since it is the first sampled token: other weights, another seed, or rounding"
    if one is not None and other is not None and abs(one - other) <= _EXACT:
        return "a near tie: both tokens are equally likely up to rounding"
    return _RANDOM if gap == 0 else _ROUNDED


_RANDOM = (
    "another random number, since all log probabilities before it are equal bit by bit: the agent calls the model in "
    "another order, or with a seed of its own"
)
_ROUNDED = (
    "rounding: the log probabilities before it agree up to rounding, and its random number lies where that decides. "
    "What else is sampled at the same time changes how sums round: sampling is not batch invariant"
)
