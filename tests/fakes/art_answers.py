"""Conversations of ART's clients, with answers in this server's format."""

from collections.abc import Sequence
from typing import Any

from nat.art.wire import ArtChoice, ArtTrajectory, ArtTrajectoryGroup
from nat.backend.tokenizer import ChatTokenizer


def choice(
    token_ids: Sequence[int],
    logprobs: Sequence[float] | None = None,
    *,
    content: str | None = "",
    finish_reason: str = "stop",
    **message: Any,
) -> ArtChoice:
    """An answer with its tokens as `token_id:<id>`; log probabilities that are not given are -1."""
    values = [-1.0] * len(token_ids) if logprobs is None else logprobs
    entries = [
        {"token": f"token_id:{token}", "logprob": value, "bytes": None, "top_logprobs": []}
        for token, value in zip(token_ids, values, strict=True)
    ]
    return ArtChoice.model_validate(
        {
            "finish_reason": finish_reason,
            "index": 0,
            "logprobs": {"content": entries, "refusal": None},
            "message": {"role": "assistant", "content": content, "refusal": None, "tool_calls": None, **message},
        }
    )


def said(tokenizer: ChatTokenizer, text: str) -> ArtChoice:
    """An answer with this text and the end of the turn."""
    return choice([*tokenizer.encode(text), tokenizer.eos_token_id or 0], content=text)


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def trajectory(reward: float, *items: Any, **more: Any) -> ArtTrajectory:
    return ArtTrajectory(reward=reward, messages_and_choices=list(items), **more)


def group(*trajectories: ArtTrajectory) -> ArtTrajectoryGroup:
    return ArtTrajectoryGroup(trajectories=list(trajectories))
