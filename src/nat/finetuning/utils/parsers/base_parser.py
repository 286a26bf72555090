"""The steps of a rollout as OpenAI messages, for trajectory builders of plug-ins."""

from collections.abc import Iterable
from typing import Any

from nat.data_models.intermediate_step import IntermediateStep
from nat.finetuning.trajectories.calls import calls_of
from nat.finetuning.trajectories.messages import conversations

__all__ = ["parse_to_openai_messages"]


def parse_to_openai_messages(steps: Iterable[IntermediateStep]) -> list[dict[str, Any]]:
    """The messages of the one conversation in `steps`; empty without an LLM call.

    Assistant messages have `logprobs`: those of the server for sampled messages (None if it sent none), `{}` for
    messages that the agent wrote.

    Raises:
        ValueError: the calls are several conversations, such as a sub-agent's or a retry's.

    """
    threads = conversations(calls_of(steps))
    if len(threads) > 1:
        seen = ", ".join(f"{number}: {thread.began.value}" for number, thread in enumerate(threads))
        raise ValueError(
            f"the LLM calls make {len(threads)} conversations ({seen}), not one; choose the steps of one function, "
            "or use a built-in trajectory builder, which makes an episode of several"
        )
    messages: list[dict[str, Any]] = []
    for thread in threads:
        for position, message in enumerate(thread.messages):
            sampled = thread.sampled.get(position)
            if sampled is not None:
                messages.append({**message, "logprobs": sampled.logprobs})
            else:
                messages.append({**message, "logprobs": {}} if message.get("role") == "assistant" else dict(message))
    return messages
