"""Conversations as the guide's episode, one item per message; and the rows of an episode.

A sampled answer carries its logprobs and, in its metadata, the exact tokens. An assistant message that the
policy did not sample (a few-shot example, a history rewritten by the agent) stays as context with empty
logprobs and `sampled: false`. Tool messages stay tool messages.
"""

from collections.abc import Sequence
from typing import Any

from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole, Trajectory
from nat.errors import InvalidTrajectories
from nat.finetuning.trajectories.calls import SeenCall, exact_tokens, token_logprobs
from nat.finetuning.trajectories.messages import Message, Thread, text_of
from nat.wire.rows import CallTokens, merge
from nat.wire.training import TrainingRow

_ROLES = {role.value: role for role in EpisodeItemRole} | {
    "developer": EpisodeItemRole.SYSTEM,
    "human": EpisodeItemRole.USER,
    "ai": EpisodeItemRole.ASSISTANT,
}
_KEPT = ("tool_calls", "tool_call_id", "function_call", "name")


def episode(threads: Sequence[Thread]) -> list[EpisodeItem]:
    """All conversations, one after the other; `metadata["conversation"]` numbers them if there are several."""
    items: list[EpisodeItem] = []
    for number, thread in enumerate(threads):
        shared = {"conversation": number} if len(threads) > 1 else {}
        for position, message in enumerate(thread.messages):
            items.append(_item(message, thread.sampled.get(position), shared))
    return items


def rows_of_episode(trajectory: Trajectory, *, model: str | None) -> list[TrainingRow]:
    """The rows of a trajectory, merged from its answers; only what `model` sampled, if it is given.

    Raises:
        InvalidTrajectories: it has shaped rewards, but not one for each answer.

    """
    answers = trajectory.answers
    found = [_tokens(item, value) for item, value in zip(answers, _values(trajectory, answers), strict=True)]
    return merge(call for call in found if call is not None and model in {None, call.model})


def _item(message: Message, seen: SeenCall | None, shared: dict[str, Any]) -> EpisodeItem:
    role = _ROLES.get(str(message.get("role")), EpisodeItemRole.OTHER)
    metadata = shared | {key: message[key] for key in _KEPT if message.get(key)}
    if isinstance(message.get("content"), list):
        metadata["content"] = message["content"]
    logprobs = None
    if seen is not None:
        logprobs = seen.logprobs
        call = seen.call
        metadata |= {"tools": call.tools} if call.tools else {}
        if call.temperature != 1:
            metadata |= {"temperature": call.temperature, "logprobs_temperature": call.logprobs_temperature}
        metadata |= {
            "model": seen.model,
            "finish_reason": call.finish_reason,
            "policy_version": call.policy_version,
            "prompt_token_ids": call.prompt_token_ids,
            "token_ids": call.token_ids,
        }
        metadata |= {} if seen.reward is None else {"reward": seen.reward}
    elif role is EpisodeItemRole.ASSISTANT:
        logprobs = {}
        metadata["sampled"] = False
    return EpisodeItem(role=role, content=text_of(message), logprobs=logprobs, metadata=metadata or None)


def _tokens(item: EpisodeItem, value: float | None) -> CallTokens | None:
    facts = item.metadata or {}
    return exact_tokens(
        str(facts.get("model")),
        facts.get("prompt_token_ids"),
        facts.get("token_ids"),
        token_logprobs(item.logprobs),
        value=value,
        temperature=facts.get("logprobs_temperature", 1.0),
        policy_version=facts.get("policy_version"),
    )


def _values(trajectory: Trajectory, answers: Sequence[EpisodeItem]) -> Sequence[float | None]:
    shaped = trajectory.shaped_rewards
    if shaped is None:
        return [None] * len(answers)
    if len(shaped) != len(answers):
        raise InvalidTrajectories(
            f"a trajectory has {len(shaped)} shaped_rewards for {len(answers)} answers",
            hint="give one number for each assistant item that is trained on, in their order, or none at all",
        )
    return shaped
