"""The embedded backend's requests in the OpenAI API: chat and text completions.

An unsupported option is an error unless it has its neutral value, since an option without effect would falsify an
experiment. Bookkeeping fields of the SDKs are accepted and ignored. So are unknown fields, if the validation's context
is a set, which then gets their names: clients of others send what their own servers understand.
"""

from typing import Annotated, Any, Literal, Self, cast

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

_BOOKKEEPING = ("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key")
_NEUTRAL: dict[str, tuple[object, ...]] = {
    **{name: (*values, None) for name, values in {**NEUTRAL, **FORCED}.items()},
    "echo": (False, None),
    "suffix": ("", None),
    "modalities": (["text"], None),
    "audio": (None,),
    "prediction": (None,),
    "reasoning_effort": (None, "none"),
    "verbosity": (None,),
    "web_search_options": (None,),
    "functions": (None,),
    "chat_template": (None,),
    "documents": ([], None),
    "continue_final_message": (False, None),
    "stop_token_ids": ([], None),
    "include_stop_str_in_output": (False, None),
    "truncate_prompt_tokens": (None,),
    "thinking_token_budget": (None,),
    "skip_special_tokens": (True, None),
    "add_generation_prompt": (True, None),
}


LONGEST_STOP = 1000


def _as_list(value: object) -> object:
    return [value] if isinstance(value, str) else value


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


class TextPart(ApiModel):
    """A part of a message's content; only text is supported."""

    type: Literal["text"]
    text: str


class ToolCallFunction(ApiModel):
    """The function of a call; the arguments are JSON in a string."""

    name: str
    arguments: str = ""


class ToolCall(ApiModel):
    """A tool call in an earlier answer."""

    id: str | None = None
    type: Literal["function"] = "function"
    function: ToolCallFunction


class ChatMessage(BaseModel):
    """One message; keys of other vendors pass through to the chat template."""

    model_config = ConfigDict(extra="allow")

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | Several[TextPart] | None = None
    name: str | None = None
    tool_calls: Several[ToolCall] | None = None
    tool_call_id: str | None = None


class FunctionDefinition(BaseModel):
    """A function that the model may call, with its JSON schema."""

    model_config = ConfigDict(extra="allow")

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolDefinition(ApiModel):
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
    """New tokens per choice, by default as many as the context has room for."""
    stop: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=LONGEST_STOP)]],
        BeforeValidator(_as_list),
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
            if data[key] not in _NEUTRAL[key]:
                raise ValueError(f"{key}={data[key]!r} is not supported by this server; leave it out")
        dropped = unknown.intersection([*_NEUTRAL, *_BOOKKEEPING])
        if isinstance(info.context, set):
            info.context.update(unknown - dropped)
            dropped = unknown
        return {k: v for k, v in data.items() if k not in dropped}

    @model_validator(mode="after")
    def _stream_options_need_a_stream(self) -> Self:
        if self.stream_options.include_usage and not self.stream:
            raise ValueError("stream_options needs stream=true")
        return self


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
        """How many tokens a choice may have, None for all that fit."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def calls_tools(self) -> bool:
        """True if the prompt lists tools and answers are parsed for calls."""
        return bool(self.tools) and self.tool_choice == "auto"


class CompletionRequest(SamplingRequest):
    """POST /v1/completions."""

    prompt: str | Several[int] | Several[str] | Several[Several[int]]
    """Text or token ids, one prompt or several."""
    logprobs: int | None = Field(default=None, ge=0, le=20)
    """None for no log probabilities, else how many alternatives to each token."""
    prompt_logprobs: int | None = Field(default=None, ge=0, le=20)
    """None to score no prompt, else how many alternatives to each of its tokens, as in vLLM; at temperature 1."""

    @model_validator(mode="after")
    def _scored_once(self) -> Self:
        if self.prompt_logprobs is not None and (self.stream or self.n > 1):
            raise ValueError("prompt_logprobs needs stream=false and n=1")
        return self

    @property
    def new_tokens(self) -> int | None:
        """How many tokens a choice may have, None for all that fit."""
        return self.max_tokens

    @property
    def prompts(self) -> list[str] | list[list[int]]:
        """The prompts, always as a list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if self.prompt and isinstance(self.prompt[0], int):
            return [self.prompt]  # all elements have the type of the first
        return cast("list[str] | list[list[int]]", self.prompt)


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
