"""Find the LLMs of the YAML that call the ART server, and the name that serves them the trained model. Pure."""

import re
from collections.abc import Mapping, Sequence

from nat.art.client.config import ARTBackendConfig
from nat.art.wire import Serving
from nat.capture.redirect import address_of
from nat.data_models.llm import ModelEndpoint
from nat.errors import BackendUnreachable, ConfigError
from nat.finetuning.sampling import REPLACE, block_finding


def trained_llms(
    llms: Mapping[str, ModelEndpoint], backend: ARTBackendConfig, *, inference_url: str, target: str | None
) -> dict[str, ModelEndpoint]:
    """The LLMs whose requests get the trained model.

    They ask the server for the run's name or for the base model. If one asks for the run's name, the base model's name
    means the base model, so that a judge can use it.

    Raises:
        ConfigError: there is none, or `finetuning.target_model` is another LLM.

    """
    server = address_of(inference_url)
    here = {key: llm for key, llm in llms.items() if llm.base_url and address_of(llm.base_url) == server}
    by_name = {
        k: llm for k, llm in here.items() if llm.model == backend.name or llm.model.startswith(f"{backend.name}@")
    }
    trained = by_name or {key: llm for key, llm in here.items() if llm.model == backend.base_model}
    if not trained:
        raise _no_trained_llm(llms, backend, inference_url)
    if target in llms.keys() - trained.keys():
        raise ConfigError(
            [f"finetuning.target_model: '{target}' does not use the trained model; {', '.join(trained)} does"],
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


def notice(key: str, llm: ModelEndpoint, served: str) -> str:
    """The notice that an LLM's requests use another model than its configuration names."""
    return f"llms.{key} names {llm.model}; during the run, its requests use {served}, the trained model"


def sampling_warnings(llms: Mapping[str, ModelEndpoint]) -> list[str]:
    """Warn of temperatures other than 1, which ART's own server trains as if they were 1.

    Raises:
        ConfigError: neither server can train on what an LLM samples.

    """
    findings = [block_finding(key, llm.sampling) for key, llm in llms.items() if not llm.sampling.trainable]
    if findings:
        raise ConfigError(findings)
    return [
        f"llms.{key} samples with temperature {llm.sampling.temperature:g}. `nat backend serve` trains that as it "
        f"is sampled; ART's own server trains it as if it were sampled at 1. Set `temperature: 1` or `{REPLACE}`."
        for key, llm in llms.items()
        if llm.sampling.temperature != 1
    ]


def _no_trained_llm(llms: Mapping[str, ModelEndpoint], backend: ARTBackendConfig, inference_url: str) -> ConfigError:
    findings = [
        f"llms.{key}: requests {llm.model} from {llm.base_url or 'OpenAI'}, which is not the trained model"
        for key, llm in llms.items()
    ]
    return ConfigError(
        findings or ["llms: empty, so nothing uses the trained model"],
        hint=f"let the LLM of your workflow have `base_url: {inference_url}` and `model_name: {backend.name}` "
        f"(or {backend.base_model}); there the ART server samples the weights that it trains",
    )
