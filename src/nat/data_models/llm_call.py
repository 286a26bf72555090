"""The exact record of one LLM call, as it was sent over HTTP."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class LLMCall(BaseModel):
    """One request and one choice of its answer; attached to the LLM_END step as `metadata.llm_call`."""

    model_config = ConfigDict(extra="forbid", ser_json_inf_nan="constants")

    llm_name: str | None = None
    """The key under `llms` in the YAML, None for a client that the harness did not build."""
    model: str
    """The model's name as the request had it when it was sent."""
    requested_model: str | None = None
    """The model's name in the agent's request; a run may redirect requests to another."""
    messages: list[dict[str, Any]]
    """The request's messages in OpenAI's shape; a completion's prompt is one user message."""
    tools: list[dict[str, Any]] | None = None
    message: dict[str, Any]
    """The assistant message of this choice, tool calls included."""
    finish_reason: str | None = None
    temperature: float = 1.0
    """Sampling temperature of the request that was sent."""
    untrainable_by: list[str] = []
    """Request fields that change the distribution softmax(logits / temperature), as `field=value`."""
    logprobs: list[float] | None = None
    """Log probability of each sampled token, in order; length C. None if the server gave none."""
    logprobs_temperature: float = 1.0
    """Temperature of the distribution that the log probabilities refer to; 1 unless the server reports another."""
    prompt_token_ids: list[int] | None = None
    """The prompt as the model saw it; length P. None if the server does not report it."""
    token_ids: list[int] | None = None
    """The sampled tokens; length C. None if the server does not report it."""
    policy_version: str | None = None
    """The answer's `system_fingerprint`: which weights made it."""
    broken_prefix: str | None = None
    """Why the prompt does not continue with the tokens of earlier answers, if the server gave a reason."""
    lost_call: str | None = None
    """Why a tool call that the answer began stayed text, if the server gave a reason."""
