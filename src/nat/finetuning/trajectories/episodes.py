"""Conversations as the episode of a trajectory: one item per message.

A sampled answer carries its logprobs and, in its metadata, the exact tokens. An assistant message that the
policy did not sample (a few-shot example, a history rewritten by the agent) stays as context with empty
logprobs and `sampled: false`. Tool messages stay tool messages.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from nat.data_models.finetuning import EpisodeItem, EpisodeItemRole
from nat.finetuning.trajectories.calls import SeenCall
from nat.finetuning.trajectories.messages import Conversation
from nat.finetuning.trajectories.wording import Message, text_of

_ROLES = {role.value: role for role in EpisodeItemRole} | {
    "developer": EpisodeItemRole.SYSTEM,
    "human": EpisodeItemRole.USER,
    "ai": EpisodeItemRole.ASSISTANT,
}
_KEPT = ("tool_calls", "tool_call_id", "function_call", "name")


_NOTHING: Mapping[int, float] = MappingProxyType({})


def episode(threads: Sequence[Conversation], rewards: Mapping[int, float] = _NOTHING) -> list[EpisodeItem]:
    """All conversations, one after the other; `metadata["conversation"]` numbers them when there are several.

    `rewards` are those of single answers, by the place of their call among the steps.
    """
    items: list[EpisodeItem] = []
    for number, thread in enumerate(threads):
        shared = {"conversation": number} if len(threads) > 1 else {}
        for position, message in enumerate(thread.messages):
            items.append(_item(message, thread.sampled.get(position), shared, rewards))
    return items


def _item(message: Message, seen: SeenCall | None, shared: dict[str, Any], rewards: Mapping[int, float]) -> EpisodeItem:
    role = _ROLES.get(str(message.get("role")), EpisodeItemRole.OTHER)
    metadata = shared | {key: message[key] for key in _KEPT if message.get(key)}
    if isinstance(message.get("content"), list):
        metadata["content"] = message["content"]
    logprobs = None
    if seen is not None:
        logprobs = seen.logprobs
        metadata |= _sampling(seen) | ({"reward": rewards[seen.at]} if seen.at in rewards else {})
    elif role is EpisodeItemRole.ASSISTANT:
        logprobs = {}
        metadata["sampled"] = False
    return EpisodeItem(role=role, content=text_of(message), logprobs=logprobs, metadata=metadata or None)


def _sampling(seen: SeenCall) -> dict[str, Any]:
    call = seen.call
    told: dict[str, Any] = {"tools": call.tools} if call.tools else {}
    if call.temperature != 1:
        told |= {"temperature": call.temperature, "logprobs_temperature": call.logprobs_temperature}
    return told | {
        "model": seen.model,
        "finish_reason": call.finish_reason,
        "policy_version": call.policy_version,
        "prompt_token_ids": call.prompt_token_ids,
        "token_ids": call.token_ids,
    }
