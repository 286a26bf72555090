"""The embedded backend's responses in the OpenAI API: chat and text completions, whole and streamed.

Dump with `exclude_unset=True`: a field that was not set is absent, one that was set to None is null.
"""

from enum import StrEnum
from typing import Literal

from pydantic import BaseModel, ConfigDict

FinishReason = Literal["stop", "length", "tool_calls"]


class BrokenPrefix(StrEnum):
    """Why the prompt of a chat does not contain the exact tokens of its earlier answers."""

    NOT_SERVED = "not_served"
    """The server does not remember the answers: examples in the prompt, another server's, or too old."""
    ANSWER_EDITED = "answer_edited"
    """The messages before an answer are known, but the server's answer to them was another."""
    CONTEXT_CHANGED = "context_changed"
    """An answer is known, but with other messages or tools before it."""
    TEMPLATE_REWRITES = "template_rewrites"
    """Messages and answers are unchanged, but the chat template renders them differently now."""


class CallStatus(StrEnum):
    """Why a tool call cannot be used: that of an unknown tool is passed on, all others stay text."""

    UNCLOSED = "unclosed"
    MALFORMED = "malformed"
    UNKNOWN_TOOL = "unknown_tool"
    NO_FORMAT = "no_format"
    """An answer has no call, and no known format reads those of its model."""


class ResponseModel(BaseModel):
    """The server builds it from checked parts, so unknown fields are programming errors."""

    model_config = ConfigDict(extra="forbid")


class PromptTokens(ResponseModel):
    """Prompt tokens that came from the prefix cache."""

    cached_tokens: int = 0


class CompletionUsage(ResponseModel):
    """Tokens of all choices; end-of-sequence tokens count."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokens = PromptTokens()


class Alternative(ResponseModel):
    """A token and its log probability; `bytes` is null if they are unknown."""

    token: str
    logprob: float
    bytes: tuple[int, ...] | None


class TokenLogprob(Alternative):
    """A sampled token."""

    top_logprobs: list[Alternative]


class ChatLogprobs(ResponseModel):
    """One entry per sampled token, end-of-sequence tokens included."""

    content: list[TokenLogprob]
    refusal: None


class ResponseFunction(ResponseModel):
    """A function's name and its arguments, JSON in a string."""

    name: str
    arguments: str


class ResponseToolCall(ResponseModel):
    """A tool call that the model made; `index` only in streams."""

    index: int | None = None
    id: str
    type: Literal["function"]
    function: ResponseFunction


class ResponseMessage(ResponseModel):
    """The assistant's message, or a chunk's addition to it."""

    role: Literal["assistant"] | None = None
    content: str | None = None
    refusal: None = None
    reasoning_content: str | None = None
    """The model's thinking, if its chat template tells it from the content."""
    tool_calls: list[ResponseToolCall] | None = None


class ChatChoice(ResponseModel):
    """One answer; `token_ids` on request, `logprobs_temperature` if it is not 1."""

    index: int
    message: ResponseMessage | None = None
    delta: ResponseMessage | None = None
    logprobs: ChatLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | None = None
    """The stop string that ended it, as vLLM reports it; missing for the end of the text."""
    token_ids: list[int] | None = None
    lost_call: CallStatus | None = None
    """With `token_ids`, why the first call that cannot be used cannot."""
    logprobs_temperature: float | None = None
    """Temperature T of the log probabilities, those of softmax(logits / T)."""


class ChatCompletion(ResponseModel):
    """`chat.completion`, or a `chat.completion.chunk` whose choices hold deltas."""

    id: str
    object: Literal["chat.completion", "chat.completion.chunk"]
    created: int
    model: str
    system_fingerprint: str | None
    """`name@step` of the weights that answered."""
    choices: list[ChatChoice]
    usage: CompletionUsage | None = None
    prompt_token_ids: list[int] | None = None
    broken_prefix: BrokenPrefix | None = None
    """Set if `prompt_token_ids` lack sampled tokens of the history."""


class TextLogprobs(ResponseModel):
    """Parallel lists over the sampled tokens."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class PromptLogprob(ResponseModel):
    """A token at a position of a prompt; its id is the key."""

    logprob: float
    rank: int
    """1 for the most likely token."""
    decoded_token: str


class TextChoice(ResponseModel):
    """One continuation; the ids and the temperature as in a `ChatChoice`."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: FinishReason | None
    stop_reason: str | None = None
    """The stop string that ended it, as vLLM reports it; missing for the end of the text."""
    prompt_token_ids: list[int] | None = None
    token_ids: list[int] | None = None
    logprobs_temperature: float | None = None
    prompt_logprobs: list[dict[int, PromptLogprob] | None] | None = None
    """For each token of the prompt, itself and alternatives by id; null for the first, which nothing predicts."""


class TextCompletion(ResponseModel):
    """`text_completion`, whole or a chunk of it."""

    id: str
    object: Literal["text_completion"]
    created: int
    model: str
    system_fingerprint: str | None
    choices: list[TextChoice]
    usage: CompletionUsage | None = None


class TokenizedText(ResponseModel):
    """Answer of POST /tokenize."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: None = None


class DetokenizedText(ResponseModel):
    """Answer of POST /detokenize."""

    prompt: str


class ModelCard(ResponseModel):
    """A name that requests can use for the model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int


class ModelList(ResponseModel):
    """GET /v1/models."""

    object: Literal["list"]
    data: list[ModelCard]


class ErrorDetail(BaseModel):
    """An error in the shape that the OpenAI SDKs read."""

    model_config = ConfigDict(extra="ignore")

    message: str
    type: str
    """Kind of the error; `nat serve` gives the name of the exception's class."""
    param: str | None = None
    code: str | None = None


class ErrorResponse(ResponseModel):
    """The body of every error response; it has the message in two places."""

    error: ErrorDetail
    detail: str
    """The message again, for clients of FastAPI servers."""
