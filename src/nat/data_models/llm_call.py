"""The exact record of one LLM call, as it went over the wire."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class LLMCall(BaseModel):
    """One request and one choice of its answer; attached to the LLM_END step as `metadata.llm_call`."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    llm_name: str | None = None
    """The key under `llms` in the YAML, None for a client that the harness did not build."""
    model: str
    """The model's name as the request had it when it was sent."""
    asked_model: str | None = None
    """The model's name as the agent said it; a run may send its requests to another."""
    messages: list[dict[str, Any]]
    """The request's messages in OpenAI's shape; a completion's prompt is one user message."""
    tools: list[dict[str, Any]] | None = None
    message: dict[str, Any]
    """The assistant message of this choice, tool calls included."""
    finish_reason: str | None = None
    temperature: float = 1.0
    """What it was sampled at, by the request as it was sent."""
    untrainable_by: list[str] = []
    """What in the request kept the answer from being drawn from softmax(logits / temperature), as `field=value`."""
    logprobs: list[float] | None = None
    """Log probability of each sampled token, in order; length C. None if the server gave none."""
    logprobs_temperature: float = 1.0
    """Of the distribution that the log probabilities are of; 1 unless the server says another."""
    prompt_token_ids: list[int] | None = None
    """The prompt as the model saw it; length P. None if the server does not tell."""
    token_ids: list[int] | None = None
    """The sampled tokens; length C. None if the server does not tell."""
    policy_version: str | None = None
    """The answer's `system_fingerprint`: which weights made it."""
    broken_prefix: str | None = None
    """Why the prompt does not go on with the tokens of its answers, if the server told a reason."""
