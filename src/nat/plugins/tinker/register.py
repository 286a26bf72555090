"""The `tinker` LLM and its trainer adapter: a backend on this machine, with tokens and gradients of a Tinker server."""

from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator

from nat.builder.builder import Builder
from nat.builder.llm import LLMProviderInfo
from nat.data_models.component_ref import LLMRef
from nat.data_models.finetuning import FinetuneConfig, TrainingJobRef, TrainingJobStatus
from nat.data_models.llm_usage import Purpose
from nat.errors import ConfigError
from nat.plugins.llms.openai import check_listening
from nat.plugins.local.adapter import LocalTrainerAdapter, LocalTrainerAdapterConfig, with_backend
from nat.plugins.local.export import export_checkpoint
from nat.plugins.local.llm import LocalModelConfig, local_llm
from nat.registry.decorators import register_llm_provider, register_trainer_adapter
from nat.sizing.forecast import ForecastRequest, TrainingForecast
from nat.tinker.options import TinkerRemoteOptions
from nat.wire.model_folder import is_adapter, is_model
from nat.wire.serving import CHECKPOINTS, LOCAL_PACKAGES, SERVER_URL, BackendOptions, ServeOptions
from nat.wire.training import CHECK_CALLS, CHECK_TOKENS, TRAINED_CALLS, TRAINED_TOKENS, JobState

_USED = {
    "chat_template_kwargs",
    "keep_last",
    "max_num_seqs",
    "max_seq_length",
    "response_template",
    "sanitize_control_tokens",
    "save_every",
    "seed",
}
REFUSED = set(BackendOptions.model_fields) - _USED
"""Keys of `local` models that have no effect here."""

_CHARGED: Mapping[Purpose, tuple[str, str]] = {
    "training": (TRAINED_CALLS, TRAINED_TOKENS),
    "checks": (CHECK_CALLS, CHECK_TOKENS),
}
"""Metrics of requests and of tokens, by what they were for."""


class TinkerLoRA(BaseModel):
    """The adapter that the server trains; its alpha and its modules are the server's own."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)

    rank: int = Field(default=16, ge=1)
    """Rank of the adapter."""
    load_in_4bit: ClassVar[bool] = False


class TinkerModelConfig(LocalModelConfig, name="tinker"):
    """A model that a server of the Tinker protocol samples and trains: SkyRL, `nat backend serve`, the hosted service.

    Options of an engine or a device are refused, since the server has its own.
    """

    usual_trainer_adapter = "tinker_trainer_adapter"
    packages: ClassVar[tuple[str, ...]] = (*LOCAL_PACKAGES, "tinker")
    extras: ClassVar[tuple[str, ...]] = ("local", "tinker-client")

    base_url: str = Field(pattern=SERVER_URL)
    """Address of the server, without `/api/v1`."""
    api_key: SecretStr | None = None
    """Its key, which begins with `tml-`; better set as the environment variable TINKER_API_KEY."""
    base_model: str
    """Name of the base model on the server; `model` is a folder with its tokenizer and config.json."""
    max_tokens: int = Field(ge=1)
    """Limit of new tokens per answer; required, since some servers compile a program for each number."""
    lora: TinkerLoRA | None = TinkerLoRA()  # type: ignore[assignment]
    """The adapter that is trained; with `null` all weights are, if the server offers it."""

    @model_validator(mode="after")
    def _of_no_engine(self) -> Self:
        if idle := self.model_dump(include=REFUSED, exclude_defaults=True):
            raise ValueError(f"{', '.join(sorted(idle))}: no effect, since a Tinker server has the model; leave it out")
        return self

    @property
    def description(self) -> str:
        return f"{self.base_model} on the Tinker server at {self.base_url}"

    def options(self, output_dir: Path | None, environment: Mapping[str, str]) -> ServeOptions:
        """The options of the backend process; the environment has the key, unless the block does."""
        own = self.model_dump(include=_USED, exclude_defaults=True)
        if output_dir is not None:
            own |= {"output_dir": output_dir, "resume": (output_dir / CHECKPOINTS).is_dir()}
        return TinkerRemoteOptions(
            **own,
            model=self.model,
            served_model_name=self.served_name,
            port=0,
            tinker_url=self.base_url,
            tinker_api_key=self.api_key or environment.get("TINKER_API_KEY"),
            base_model=self.base_model,
            lora_rank=0 if self.lora is None else self.lora.rank,
        )


@register_llm_provider(config_type=TinkerModelConfig)
async def tinker_llm(config: TinkerModelConfig, builder: Builder) -> AsyncGenerator[LLMProviderInfo, None]:
    """Start the backend that speaks to the server; BackendUnreachable at once if it does not listen."""
    await check_listening(config.base_url, option=f"llms.{builder.llm_name}.base_url")
    async with local_llm(config, builder) as provider:
        yield provider


class TinkerTrainerAdapterConfig(LocalTrainerAdapterConfig, name="tinker_trainer_adapter"):
    """Has a Tinker server train a `tinker` LLM with its named losses; the advantages are computed on this machine."""

    trains = TinkerModelConfig

    llm: LLMRef
    """Key of the `tinker` LLM to train."""
    teacher: None = None
    """Always null: the named losses have no teacher."""


class TinkerTrainerAdapter(LocalTrainerAdapter):
    """One job of the backend per epoch, which the server computes."""

    async def initialize(self, run_config: FinetuneConfig) -> None:
        """Measure what the server computes; BackendError or ConfigError if a setting is none of it."""
        if run_config.max_staleness:
            seen = f"finetuning.max_staleness: {run_config.max_staleness}, but a Tinker server trains between epochs"
            raise ConfigError([seen], hint="leave max_staleness at 0")
        await super().initialize(run_config)

    async def forecast(self, request: ForecastRequest) -> TrainingForecast | None:
        """None: what the server takes is not known."""
        return None

    def _status(self, ref: TrainingJobRef, state: JobState) -> TrainingJobStatus:
        """With the tokens that the server was sent, which it may charge for."""
        status, llm = super()._status(ref, state), str(self._config.llm)
        usage = {
            purpose: {llm: {"calls": state.metrics[calls], "prompt_tokens": state.metrics[tokens]}}
            for purpose, (calls, tokens) in _CHARGED.items()
            if tokens in state.metrics
        }
        return status.model_copy(update={"metadata": {**(status.metadata or {}), "usage": usage}})

    async def _write_best(self, kept: Path, target: Path) -> Path | None:
        if not is_model(kept):
            return None
        return await export_checkpoint(kept, target, "peft" if is_adapter(kept) else "hf")


register_trainer_adapter(config_type=TinkerTrainerAdapterConfig)(with_backend(TinkerTrainerAdapter))
