"""The OpenAI API of the embedded backend: requests for chat and text completions, and the answers.

An unsupported option is an error unless it has its neutral value, since an option without effect would falsify an
experiment. Bookkeeping of the SDKs is accepted and ignored, in messages too. So are unknown fields, if the validation's
context is a set, which then gets their names: clients of others send what their own servers understand.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self, TypedDict

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)

from nat.wire.json import Several
from nat.wire.sampling import FORCED, MAX_TEMPERATURE, MIN_TEMPERATURE, NEUTRAL

SESSION_HEADER = "nat-session"
"""Header with the session: if several sessions have the same answer text, a chat continues its own tokens."""

_BOOKKEEPING = frozenset(
    (
        *("user", "metadata", "store", "service_tier", "safety_identifier", "timeout", "extra_headers", "extra_query"),
        *("prompt_cache_key", "prompt_cache_options", "prompt_cache_retention", "request_id", "cache_salt", "priority"),
    )
)
_UNSUPPORTED = ("audio", "chat_template", "functions", "moderation", "prediction", "verbosity", "web_search_options")
_NEUTRAL: dict[str, tuple[object, ...]] = {
    **NEUTRAL,
    **FORCED,
    **dict.fromkeys((*_UNSUPPORTED, "truncate_prompt_tokens", "thinking_token_budget"), ()),
    "echo": (False,),
    "suffix": ("",),
    "modalities": (["text"],),
    "reasoning_effort": ("none",),
    "documents": ([],),
    "continue_final_message": (False,),
    "stop_token_ids": ([],),
    "include_stop_str_in_output": (False,),
    "skip_special_tokens": (True,),
    "add_generation_prompt": (True,),
    "add_special_tokens": (False,),
}
"""Options that are not supported, with the values that change nothing; `null` is one of them."""
_ACTING = ("function_call", "audio", "refusal", "prefix", "partial")
"""Keys of a message that would change the prompt, or say to continue the message."""


LONGEST_STOP = 1000


def _as_prompts(value: object) -> object:
    """One prompt as a list of one; refuses in one sentence, where a union has a finding for each of its kinds."""
    prompts = value if isinstance(value, list) and not _all(value, int) else [value]
    if not (_all(prompts, str) or all(_all(each, int) for each in prompts)):
        raise ValueError("expected a text, token ids, or a list of one of these")
    return prompts


def _all(value: object, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


class ApiModel(BaseModel):
    """Unknown keys are errors; `null` means the default, as it does for OpenAI."""

    model_config = ConfigDict(extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _drop_nulls(cls, data: object) -> object:
        return {k: v for k, v in data.items() if v is not None} if isinstance(data, dict) else data


class StreamOptions(ApiModel):
    """Options of a stream."""

    include_usage: bool = False
    """End with a chunk that has the usage and no choice."""
    include_obfuscation: bool = True
    """Padding of OpenAI's own chunks, which this server does not send."""
    continuous_usage_stats: Literal[False] = False


class ToolCallFunction(ApiModel, extra="ignore"):
    """The function of a call; the arguments are JSON in a string, or its value."""

    name: str
    arguments: str | dict[str, Any] = {}


class ToolCall(ApiModel, extra="ignore"):
    """A tool call in an earlier answer."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: ToolCallFunction


def joined_text(content: object) -> object:
    """A content's parts as one text; anything else as it is.

    Raises:
        ValueError: a part is no text.

    """
    if not isinstance(content, list):
        return content
    texts = []
    for part in content:
        known = part if isinstance(part, Mapping) else {"type": type(part).__name__}
        text = known.get("text", known.get("refusal"))
        if not isinstance(text, str):
            raise ValueError(f"a part has the type {known.get('type')!r}; models get text, no image, audio or file")
        texts.append(text)
    return "".join(texts)


class ChatMessage(BaseModel):
    """One message; keys of other vendors pass through to the chat template."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: Annotated[str | None, BeforeValidator(joined_text)] = None
    name: str | None = None
    tool_calls: Several[ToolCall] | None = None
    tool_call_id: str | None = None

    @model_validator(mode="after")
    def _has_no_acting_keys(self) -> Self:
        for key in _ACTING:
            if (self.model_extra or {}).get(key):
                raise ValueError(f"{key} has no effect in a message here; send it as content or `tool_calls`")
        return self


class FunctionDefinition(BaseModel):
    """A function that the model may call; the rest is the chat template's."""

    model_config = ConfigDict(extra="allow")

    name: str


class ToolDefinition(ApiModel, extra="ignore"):
    """A tool, as passed to the chat template."""

    type: Literal["function"]
    function: FunctionDefinition


class SamplingRequest(ApiModel):
    """Fields of both chat and text completions."""

    model: str
    temperature: float = Field(default=1.0, ge=0, le=MAX_TEMPERATURE)
    """Below 0.01 the most likely token is taken. The log probabilities of an answer are those at its temperature."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    n: int = Field(default=1, ge=1, le=128)
    """Choices per prompt."""
    max_tokens: int | None = Field(default=None, ge=1)
    """New tokens per choice, by default as many as the context has room for; OpenAI's text completions: 16."""
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]],
        BeforeValidator(lambda given: [given] if isinstance(given, str) else given),
        Field(max_length=16),
    ] = []
    """A choice ends before this text, which may span several tokens."""
    seed: int | None = None
    """Same request, same seed, same weights: same answer, whatever else the server does."""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False
    """Answer with the exact ids of prompt and completion, as vLLM does."""
    return_tokens_as_token_ids: bool = False
    """Write tokens in logprobs as `token_id:<id>`, as vLLM does."""
    ignore_eos: bool = False
    """Continue after the end-of-sequence token; for measurements."""

    @property
    def new_tokens(self) -> int | None:
        """How many tokens a choice may have, None for all that fit."""
        return self.max_tokens

    @property
    def logprobs_temperature(self) -> float | None:
        """Temperature of the answer's log probabilities; None for the model's own distribution."""
        return None if self.temperature in {0, 1} else self.temperature

    @field_validator("temperature")
    @classmethod
    def _greedy_is_zero(cls, temperature: float) -> float:
        return temperature if temperature >= MIN_TEMPERATURE else 0.0

    @model_validator(mode="before")
    @classmethod
    def _refuse_unsupported_options(cls, data: object, info: ValidationInfo) -> object:
        if not isinstance(data, dict):
            return data
        unknown = data.keys() - cls.model_fields.keys()
        for key in unknown & _NEUTRAL.keys():
            if data[key] is not None and data[key] not in _NEUTRAL[key]:
                raise ValueError(f"{key}={data[key]!r} is not supported by this server; leave it out")
        dropped = unknown & (_NEUTRAL.keys() | _BOOKKEEPING)
        if isinstance(info.context, set):
            info.context.update(unknown - dropped)
            dropped = unknown
        return {k: v for k, v in data.items() if k not in dropped}


class ChatCompletionRequest(SamplingRequest):
    """POST /v1/chat/completions."""

    messages: Several[ChatMessage] = Field(min_length=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """OpenAI's newer name for max_tokens; wins over it."""
    logprobs: bool = False
    top_logprobs: int = Field(default=0, ge=0, le=20)
    tools: Several[ToolDefinition] = []
    tool_choice: Literal["none", "auto"] = "auto"
    """`required` and named tools would need guided decoding, which this server does not do."""
    parallel_tool_calls: bool = True
    """False keeps only the first call of an answer."""
    chat_template_kwargs: dict[str, JsonValue] = {}
    """Variables for the model's own chat template, such as Qwen3's `enable_thinking`; no arguments of the renderer."""

    @model_validator(mode="after")
    def _top_logprobs_need_logprobs(self) -> Self:
        if self.top_logprobs and not self.logprobs:
            raise ValueError("top_logprobs needs logprobs=true")
        return self

    @property
    def new_tokens(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def calls_tools(self) -> bool:
        """True if the prompt lists tools and answers are parsed for calls."""
        return bool(self.tools) and self.tool_choice == "auto"


class CompletionRequest(SamplingRequest):
    """POST /v1/completions."""

    prompt: Annotated[Several[str] | Several[Several[int]], BeforeValidator(_as_prompts)]
    """Text or token ids, one prompt or several."""
    add_special_tokens: bool = True
    """Add the special tokens that the model expects around a text; False for a text that has them, as in vLLM."""
    logprobs: int | None = Field(default=None, ge=0, le=20)
    """None for no log probabilities, else how many alternatives to each token."""
    prompt_logprobs: int | None = Field(default=None, ge=0, le=20)
    """None to score no prompt, else how many alternatives to each of its tokens, as in vLLM; at temperature 1."""

    @model_validator(mode="after")
    def _scored_once(self) -> Self:
        if self.prompt_logprobs is not None and (self.stream or self.n > 1):
            raise ValueError("prompt_logprobs needs stream=false and n=1")
        return self


class TokenizeText(ApiModel):
    """POST /tokenize, in vLLM's shape."""

    model: str | None = None
    prompt: str
    add_special_tokens: bool = True
    """Add the special tokens that the model expects around a text."""


class DetokenizeIds(ApiModel):
    """POST /detokenize, in vLLM's shape."""

    model: str | None = None
    tokens: Several[int]


class DetokenizedText(BaseModel):
    """The answer to it."""

    prompt: str


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


class AnswerMessage(TypedDict, total=False):
    """The assistant's message, or a chunk's addition to it."""

    role: Literal["assistant"]
    content: str | None
    refusal: None
    reasoning_content: str
    """The model's thinking, if its chat template tells it from the content."""
    tool_calls: list[dict[str, Any]]


class Choice(TypedDict, total=False):
    """One answer, or a chunk's addition to it; the ids on request."""

    index: int
    message: AnswerMessage
    delta: AnswerMessage
    text: str
    logprobs: dict[str, Any] | None
    finish_reason: Literal["stop", "length", "tool_calls"] | None
    stop_reason: str
    """The stop string that ended it, as vLLM reports it; missing for the end of the text."""
    prompt_token_ids: list[int]
    token_ids: list[int]
    lost_call: CallStatus
    """With `token_ids`, why the first call that cannot be used cannot."""
    logprobs_temperature: float
    """Temperature T of the log probabilities, those of softmax(logits / T), if it is not 1."""
    prompt_logprobs: list[dict[int, dict[str, Any]] | None]


class Completion(TypedDict, total=False):
    """`chat.completion`, `chat.completion.chunk` or `text_completion`."""

    id: str
    object: str
    created: int
    model: str
    system_fingerprint: str | None
    """`name@step` of the weights that answered."""
    choices: list[Choice]
    usage: dict[str, Any]
    prompt_token_ids: list[int]
    broken_prefix: BrokenPrefix
    """Set if `prompt_token_ids` lack sampled tokens of the history."""


class ErrorDetail(BaseModel):
    """An error in the shape that the OpenAI SDKs read."""

    message: str
    type: str
    """Kind of the error; `nat serve` gives the name of the exception's class."""
    param: str | None = None
    code: str | None = None
