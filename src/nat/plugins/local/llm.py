"""The `local` LLM: a checkpoint directory, served and trained by the embedded backend."""

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    SecretStr,
    ValidationError,
    field_validator,
)

from nat.builder.builder import Builder
from nat.builder.llm import LLMProviderInfo
from nat.data_models.llm import LLMBaseConfig
from nat.errors import ConfigError, ModelUnavailable, findings_of
from nat.files import UserPath
from nat.hub import local_model
from nat.plugins.llms.openai import OpenAIModelConfig
from nat.plugins.local.process import BackendProcess, running_backend
from nat.registry.decorators import register_llm_provider
from nat.wire.extras import install_hint, missing_packages
from nat.wire.model_folder import TOKENIZER_CONFIG, has_chat_template
from nat.wire.openai_api import ChatCompletionRequest
from nat.wire.serving import (
    CHECKPOINTS,
    LLMS,
    LOCAL_PACKAGES,
    BackendOptions,
    ServeOptions,
    environment_keys,
)

_MODEL_SECONDS = 120.0
"""For the learner's model, which is loaded before vLLM starts."""
_LEAST_REQUEST = {"model": "", "messages": [{"role": "user", "content": ""}]}
_OF_REQUESTS = frozenset({"chat_template_kwargs", "messages", "model", "n", "stream", "stream_options", "tools"})
"""Fields that `extra_body` cannot set: some would have no effect, or one on a part of the calls."""


class LoRAOptions(BaseModel):
    """Train low-rank adapters on all linear layers instead of all weights."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    rank: int = Field(default=16, ge=1)
    """Rank of the adapters; 8 to 32 suits reinforcement learning."""
    alpha: int = Field(default=32, ge=1)
    """Scale of the adapters."""
    load_in_4bit: bool = False
    """Hold the base weights in four bits (QLoRA), on CUDA by the package bitsandbytes: 0.56 instead of 2 or 4 bytes
    each; they round, and products take longer."""


class LocalModelConfig(BackendOptions, LLMBaseConfig, name="local"):
    """A Hugging Face model that the embedded backend serves and trains on this machine."""

    usual_trainer_adapter = "local_trainer_adapter"
    packages: ClassVar[tuple[str, ...]] = LOCAL_PACKAGES
    extras: ClassVar[tuple[str, ...]] = ("local",)

    model: UserPath
    """Directory with config.json, weights in safetensors, tokenizer and chat template; or a checkpoint of a run; or the
    name of a model on the Hugging Face Hub, OWNER/NAME, which is downloaded into the Hub's cache; or a GGUF file, which
    is converted once into `~/.cache/nat/gguf`."""
    revision: str | None = None
    """Branch, tag or commit of a model of the Hub; a run records the commit."""
    model_name: str | None = None
    """Name of the served model; the last part of `model` by default."""
    temperature: float = Field(default=1.0, ge=0)
    """Sampling temperature of requests that set none; each answer is trained at the temperature it was sampled at."""
    top_p: float | None = Field(default=None, gt=0, le=1)
    """Nucleus sampling of requests that set none; answers sampled with it cannot be trained on."""
    max_tokens: int | None = Field(default=None, ge=1)
    """Limit of new tokens per answer; by default the rest of the context."""
    stop: list[str] | None = None
    """Stop texts: an answer ends before them."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict)
    """Further fields, such as `seed`, for chat requests that do not set them; only fields that the backend knows."""
    lora: LoRAOptions | None = None
    """Train LoRA adapters instead of all weights."""
    startup_timeout: float = Field(default=300.0, gt=0)
    """Seconds that the backend may take to start."""
    max_retries: int = Field(default=2, ge=0)
    """Retries per request."""
    timeout: float = Field(default=600.0, gt=0)
    """Seconds after which a request to the backend fails."""

    def pinned(self) -> Self:
        found = local_model(self.model, self.revision)
        if not has_chat_template(found.folder):
            raise ModelUnavailable(
                f"{self.model} has no chat template: no chat_template.jinja, and none in {TOKENIZER_CONFIG}",
                hint="use the instruct or chat version of the model, or put a chat_template.jinja beside the tokenizer",
            )
        if found.revision is not None:
            return self.model_copy(update={"revision": found.revision})
        if found.folder == self.model:
            return self
        return self.model_copy(update={"model": found.folder, "model_name": self.served_name})

    @property
    def served_name(self) -> str:
        return self.model_name or self.model.resolve().name

    @field_validator("extra_body")
    @classmethod
    def _known_to_the_backend(cls, fields: dict[str, JsonValue]) -> dict[str, JsonValue]:
        if elsewhere := sorted(_OF_REQUESTS & fields.keys()):
            raise ValueError(f"{', '.join(elsewhere)}: set by each request, or by a key of this LLM")
        try:
            ChatCompletionRequest.model_validate({**_LEAST_REQUEST, **fields})
        except ValidationError as error:
            raise ValueError("; ".join(map(str, findings_of(error)))) from None
        return fields

    @property
    def most_at_a_time(self) -> int:
        return self.max_num_seqs

    @property
    def waits_for_updates(self) -> bool:
        return self.engine == "embedded"

    @property
    def loads_in_4bit(self) -> bool:
        return self.lora is not None and self.lora.load_in_4bit

    @property
    def starts_vllm(self) -> bool:
        return self.engine == "vllm" and self.vllm_url is None

    @property
    def description(self) -> str:
        model = self.served_name if self.model.is_absolute() else self.model  # that of a GGUF file lies in a cache
        return f"{model} on the embedded backend" + (", sampled by vLLM" if self.engine == "vllm" else "")

    def options(self, output_dir: Path | None, environment: Mapping[str, str]) -> ServeOptions:
        """The options of the backend process; without an output directory it only serves.

        The environment has the key of a server at `vllm_url`, unless the block does.
        """
        common = self.model_dump(include=set(BackendOptions.model_fields), exclude_defaults=True)
        own = {"model": self.model, "served_model_name": self.served_name, "port": 0}
        if output_dir is not None:
            own |= {"output_dir": output_dir, "resume": (output_dir / CHECKPOINTS).is_dir()}
        if self.starts_vllm:
            own |= {"vllm_startup_timeout": self.startup_timeout}
        if self.lora is not None:
            own |= {"lora_rank": self.lora.rank, "lora_alpha": self.lora.alpha, "load_in_4bit": self.loads_in_4bit}
        return ServeOptions.model_validate(environment_keys(common, environment) | common | own)


class LocalProviderInfo(LLMProviderInfo):
    """A provider whose server is our child process."""

    backend: BackendProcess
    block: LocalModelConfig
    """The LLM's block in the YAML, with the folder of its model."""
    folder: Path | None = None
    """The backend's output folder; None if it only serves."""

    def check(self) -> None:
        self.backend.check()


@register_llm_provider(config_type=LocalModelConfig)
async def local_llm(config: LocalModelConfig, builder: Builder) -> AsyncGenerator[LLMProviderInfo, None]:
    """Start the backend and yield it as an OpenAI-compatible server."""
    if missing := missing_packages(config.packages):
        needs = f"`_type: {config.static_type()}` needs packages that are not installed: {', '.join(missing)}"
        raise ConfigError(
            [f"llms.{builder.llm_name}: {needs}"], source="the installation", hint=install_hint(*config.extras)
        )
    try:
        found = await asyncio.to_thread(local_model, config.model, config.revision)
    except ModelUnavailable as error:
        raise ConfigError([f"llms.{builder.llm_name}.model: {error.message}"], hint=error.hint) from error
    block = config.model_copy(update={"model": found.folder, "model_name": config.served_name})
    with tempfile.TemporaryDirectory(prefix="nat-backend-") as scratch:
        name, trained = str(builder.llm_name), builder.trained_llms
        serves, several = bool(trained) and name not in trained, len(trained) > 1
        folder = None if serves or builder.run_dir is None else builder.run_dir / (f"{LLMS}/{name}" if several else "")
        log_name = f"backend_{name}.log" if serves or several else "backend.log"
        log_path = (builder.run_dir or Path(scratch)) / log_name
        options = block.options(folder, os.environ)
        seconds = config.startup_timeout + (_MODEL_SECONDS if config.starts_vllm else 0)
        async with running_backend(options, log_path=log_path, startup_timeout=seconds) as backend:
            client_config = OpenAIModelConfig(
                base_url=f"{backend.base_url}/v1",
                api_key=SecretStr(backend.api_key),
                model_name=config.served_name,
                temperature=config.temperature,
                top_p=config.top_p,
                max_tokens=config.max_tokens,
                stop=config.stop,
                extra_body=config.extra_body,
                max_retries=config.max_retries,
                timeout=config.timeout,
            )
            yield LocalProviderInfo(
                config=client_config,
                description=config.description,
                backend=backend,
                block=block,
                folder=folder,
            )
