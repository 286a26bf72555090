"""Find the LLMs of the YAML that call the ART server, and the name that serves them the trained model. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from nat.art.client.config import ARTBackendConfig
from nat.art.wire import Serving
from nat.capture.redirect import Address, address_of
from nat.errors import BackendUnreachable, ConfigError
from nat.finetuning.sampling import REPLACE, block_finding
from nat.wire.sampling import MODELS_OWN, Sampling


@dataclass(frozen=True)
class ConfiguredLLM:
    """An LLM of the YAML, with the properties of its requests that the configuration fixes."""

    key: str
    """Its key under `llms`."""
    model: str
    base_url: str | None = None
    sampling: Sampling = MODELS_OWN
    """How requests that set nothing are sampled."""

    @property
    def address(self) -> Address | None:
        return None if self.base_url is None else address_of(self.base_url)


def trained_llms(
    llms: Sequence[ConfiguredLLM], backend: ARTBackendConfig, *, inference_url: str, target: str | None
) -> list[ConfiguredLLM]:
    """The LLMs whose requests get the trained model.

    They ask the server for the run's name or for the base model. If one asks for the run's name, the base model's name
    means the base model, so that a judge can use it.

    Raises:
        ConfigError: there is none, or `finetuning.target_model` is another LLM.

    """
    here = [llm for llm in llms if llm.address is not None and llm.address == address_of(inference_url)]
    by_name = [llm for llm in here if llm.model == backend.name or llm.model.startswith(f"{backend.name}@")]
    trained = by_name or [llm for llm in here if llm.model == backend.base_model]
    if not trained:
        raise _no_trained_llm(llms, backend, inference_url)
    keys = [llm.key for llm in trained]
    if target in {llm.key for llm in llms} - set(keys):
        raise ConfigError(
            [f"finetuning.target_model: '{target}' does not use the trained model; {', '.join(keys)} does"],
            hint="name the trained LLM, or leave `target_model` out",
        )
    return trained


def check_base_model(serving: Serving, backend: ARTBackendConfig) -> None:
    """Raise ConfigError if the server has another base model than the one to train, whatever the LLM asks for."""
    if serving.base_model not in (backend.base_model, backend.base_model.rpartition("/")[2]):
        seen = f"'{backend.base_model}', but the ART server at {backend.base_url} has {serving.base_model!r} alone"
        raise ConfigError(
            [f"trainer adapter: backend.base_model is {seen}"],
            hint=f"set `base_model: {serving.base_model}`, or start the server with `nat backend serve` and --model "
            f"{backend.base_model} (or its folder and --served_model_name)",
        )


def served_as(names: Sequence[str], backend: ARTBackendConfig, *, inference_url: str) -> str:
    """The name to ask for: the run's own, or its newest step on servers that serve no plain name (0.5.10 to 0.5.17).

    Raises:
        BackendUnreachable: the server answers to neither.

    """
    if backend.name in names:
        return backend.name
    steps = [int(found[1]) for name in names if (found := re.fullmatch(rf"{re.escape(backend.name)}@(\d+)", name))]
    if not steps:
        raise BackendUnreachable(
            f"the server at {inference_url} does not serve '{backend.name}'; it serves {', '.join(names) or 'nothing'}",
            hint="check that the inference port belongs to the ART server of `ip` and `port`",
        )
    return f"{backend.name}@{max(steps)}"


def notice(llm: ConfiguredLLM, served: str) -> str:
    """The notice that an LLM's requests use another model than its configuration names."""
    return f"llms.{llm.key} names {llm.model}; during the run, its requests use {served}, the trained model"


def sampling_warnings(llms: Sequence[ConfiguredLLM]) -> list[str]:
    """Warn of temperatures other than 1, which ART's own server trains as if they were 1.

    Raises:
        ConfigError: neither server can train on what an LLM samples.

    """
    findings = [block_finding(llm.key, llm.sampling) for llm in llms if not llm.sampling.trainable]
    if findings:
        raise ConfigError(findings)
    return [
        f"llms.{llm.key} samples with temperature {llm.sampling.temperature:g}. `nat backend serve` trains that as it "
        f"is sampled; ART's own server trains it as if it were sampled at 1. Set `temperature: 1` or `{REPLACE}`."
        for llm in llms
        if llm.sampling.temperature != 1
    ]


def _no_trained_llm(llms: Sequence[ConfiguredLLM], backend: ARTBackendConfig, inference_url: str) -> ConfigError:
    findings = [
        f"llms.{llm.key}: requests {llm.model} from {llm.base_url or 'OpenAI'}, which is not the trained model"
        for llm in llms
    ]
    return ConfigError(
        findings or ["llms: empty, so nothing uses the trained model"],
        hint=f"let the LLM of your workflow have `base_url: {inference_url}` and `model_name: {backend.name}` "
        f"(or {backend.base_model}); there the ART server samples the weights that it trains",
    )
