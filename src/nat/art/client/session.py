"""One run's model on an ART server: registered, served, trained, and sampled by the workflow's LLMs."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic_core import PydanticSerializationError, to_json

from nat.art.client.client import ArtClient, Inference
from nat.art.client.config import ARTBackendConfig, ARTTrainingConfig
from nat.art.wire import (
    ArtDevTrainConfig,
    ArtModel,
    ArtTrainConfig,
    ArtTrainRequest,
    ArtTrajectoryGroup,
    InternalModelConfig,
    OptimizerArgs,
    Serving,
    TrainerArgs,
)
from nat.capture.context import Redirects, address_of
from nat.data_models.finetuning import ServedModel
from nat.data_models.llm import ModelEndpoint
from nat.errors import BackendError, BackendUnreachable, ConfigError
from nat.finetuning.interfaces.trainer_adapter import check_ready
from nat.finetuning.run_log import current_run
from nat.finetuning.sampling import REPLACE, block_finding
from nat.wire.json import without_surrogates
from nat.wire.sampling import target_names

logger = logging.getLogger(__name__)

_SENT: dict[str, Any] = {"by_alias": True, "exclude_none": True, "exclude_unset": True}
"""Unset fields are left out, since ART's servers fail on nulls."""


class ArtSession:
    """One run's view of one server; `connect` comes first."""

    def __init__(
        self,
        backend: ARTBackendConfig,
        training: ARTTrainingConfig,
        *,
        client: ArtClient,
        llms: Mapping[str, ModelEndpoint] | None,
        redirects: Redirects,
    ) -> None:
        self._backend = backend
        self._training = training
        self._model = art_model(backend, training)
        self._body = self._model.model_dump(mode="json", **_SENT)
        self._client = client
        self._llms = llms
        self._redirects = redirects
        self._trained: Mapping[str, ModelEndpoint] = {}
        self._best_step: int | None = None
        self.warnings: list[str] = []
        """Likely mistakes, in whole sentences: of sampling, and of settings that have no effect on this server."""
        self._connected: Inference | None = None

    @property
    def _inference(self) -> Inference:
        return check_ready(self, self._connected, first="connect()")

    @property
    def trained_names(self) -> set[str] | None:
        """All names under which capture may have recorded answers of the trained model; None if it is not known."""
        if self._llms is None:
            return None
        return {*self._trained, *self._names}

    @property
    def _names(self) -> set[str]:
        """The names by which the trained LLMs ask for the trained model, and its own."""
        return {llm.model for llm in self._trained.values()} | {self._backend.name}

    async def connect(self, target_model: str | None, *, sampling_replaced: bool = False) -> None:
        """Register the model, have it served, and redirect the requests of the LLMs that ask this server for it.

        With `sampling_replaced` the sampling of the LLMs' own blocks is not checked.

        Raises:
            BackendUnreachable: no healthy ART server answers at the configured address.
            ConfigError: no LLM of the configuration asks this server, one samples what cannot be trained on, or the
                server has another base model.

        """
        await self._client.check_health()
        await self._client.check_trains()
        await self._client.register(self._body)
        body = {"model": self._body}
        if (config := self._backend.server_config) is not None:
            body["config"] = config
        self._connected = await self._client.prepare(body)
        self.warnings = []
        if (serving := self._inference.serving) is not None:
            check_base_model(serving, self._backend)
            self.warnings += [f"The ART server at {self._backend.base_url}: {note}" for note in serving.notes]
        logger.info("Successfully registered with ART backend.")
        url = self._inference.base_url
        if self._llms is not None:
            self._trained = trained_llms(self._llms, self._backend, inference_url=url, target=target_model)
        await self._check_served()
        server, name = address_of(url), self._backend.name
        assert server is not None, "an LLM calls it"
        for requested in self._names:
            self._redirects.send(server, requested, name, frozen_llms={*(self._llms or ())} - {*self._trained})
        for key, llm in self._trained.items():
            if llm.model != name:
                text = f"llms.{key} names {llm.model}; during the run, its requests use {name}, the trained model"
                logger.info("%s", text)
                if (run := current_run()) is not None:
                    run.say(text)
        self.warnings += [] if sampling_replaced else sampling_warnings(self._trained)

    async def check(self) -> None:
        """Raise BackendError unless the control routes answer and, once connected, inference serves the model."""
        await self._client.check_health()
        if self._connected is not None:
            await self._check_served()

    async def train(self, groups: Sequence[ArtTrajectoryGroup], report: Callable[[dict[str, Any]], None]) -> str:
        """Make one update; returns the name of the new weights, which are then served."""
        if self._backend.delete_old_checkpoints:
            await self._delete_old_checkpoints()
        async for metrics in self._client.train(train_body(self._model, groups, self._training)):
            report(metrics)
        return await self.version()

    async def served_model(self) -> ServedModel:
        """The newest weights, and the options with which the run's YAML calls them."""
        return ServedModel(
            name=await self.version(),
            base_url=self._inference.base_url,
            overrides=tuple((f"llms.{key}.model_name", self._backend.name) for key in self._trained),
        )

    async def keep_best(self) -> str:
        """Keep the newest step until this is called again; returns the name of its weights."""
        self._best_step = await self._client.step(self._body)
        return f"{self._backend.name}@{self._best_step}"

    async def version(self) -> str:
        """The name of the newest weights."""
        return f"{self._backend.name}@{await self._client.step(self._body)}"

    async def _check_served(self) -> None:
        names = await self._client.served_names(self._inference)
        if self._backend.name not in names:
            seen = f"does not serve '{self._backend.name}'; it serves {', '.join(names) or 'nothing'}"
            raise BackendUnreachable(
                f"the server at {self._inference.base_url} {seen}",
                hint="check that the inference port belongs to the ART server of `ip` and `port`",
            )

    async def _delete_old_checkpoints(self) -> None:
        try:
            newest = await self._client.step(self._body)
            keep = [newest] if self._best_step is None else sorted({self._best_step, newest})
            await self._client.delete_checkpoints(self._body, keep=keep)
        except BackendError as error:
            logger.warning("Old checkpoints could not be deleted: %s", error)


def art_model(backend: ARTBackendConfig, training: ARTTrainingConfig) -> ArtModel:
    """The model to register; learning rate and beta are in each training request instead."""
    optimizer = training.model_dump(include=set(OptimizerArgs.model_fields), exclude_none=True)
    blocks = {
        "init_args": backend.init_args,
        "engine_args": backend.engine_args,
        "peft_args": backend.peft_args,
        "trainer_args": TrainerArgs(**optimizer) if optimizer else None,
        "torchtune_args": backend.torchtune_args,
    }
    requested = {name: value for name, value in blocks.items() if value is not None}
    model = ArtModel(name=backend.name, project=backend.project, trainable=True, base_model=backend.base_model)
    return model.model_copy(update={"internal_config": InternalModelConfig(**requested)}) if requested else model


def train_body(model: ArtModel, groups: Sequence[ArtTrajectoryGroup], training: ARTTrainingConfig) -> bytes:
    """POST /_train_model; `dev_config` has only the options that the YAML sets."""
    own = set(ArtTrainConfig.model_fields)
    options = ArtDevTrainConfig.model_fields.keys() - own
    request = ArtTrainRequest(
        model=model,
        trajectory_groups=list(groups),
        config=ArtTrainConfig(**training.model_dump(include=own, exclude_none=True)),
        dev_config=ArtDevTrainConfig(**training.model_dump(include=options, exclude_unset=True, exclude_none=True)),
        verbose=False,
    )
    try:
        return request.model_dump_json(**_SENT).encode()
    except PydanticSerializationError:
        return to_json(without_surrogates(request.model_dump(**_SENT)))


def trained_llms(
    llms: Mapping[str, ModelEndpoint], backend: ARTBackendConfig, *, inference_url: str, target: str | None
) -> dict[str, ModelEndpoint]:
    """The LLMs whose requests get the trained model.

    They ask the server for the run's name or for the base model. If one asks for the run's name, the base model's name
    means the base model, so that a judge can use it. If `finetuning.target_model` names some of them, the others are
    not trained, and stay with the base model.

    Raises:
        ConfigError: there is none, or `finetuning.target_model` is another LLM.

    """
    server = address_of(inference_url)
    here = {key: llm for key, llm in llms.items() if llm.base_url and address_of(llm.base_url) == server}
    by_name = {k: llm for k, llm in here.items() if llm.model.partition("@")[0] == backend.name}
    trained = by_name or {key: llm for key, llm in here.items() if llm.model == backend.base_model}
    if not trained:
        findings = [
            f"llms.{key}: requests {llm.model} from {llm.base_url or 'OpenAI'}, which is not the trained model"
            for key, llm in llms.items()
        ]
        raise ConfigError(
            findings or ["llms: empty, so nothing uses the trained model"],
            hint=f"let the LLM of your workflow have `base_url: {inference_url}` and `model_name: {backend.name}` "
            f"(or {backend.base_model}); there the ART server samples the weights that it trains",
        )
    names = target_names(target)
    if others := sorted(names & (llms.keys() - trained.keys())):
        raise ConfigError(
            [f"finetuning.target_model: '{others[0]}' does not use the trained model; {', '.join(trained)} does"],
            hint="name the trained LLM, or leave `target_model` out",
        )
    return {key: llm for key, llm in trained.items() if names & {key, llm.model}} or trained


def check_base_model(serving: Serving, backend: ARTBackendConfig) -> None:
    """Raise ConfigError if the server has another base model than the one to train, whatever the LLM asks for."""
    if serving.base_model not in (backend.base_model, backend.base_model.rpartition("/")[2]):
        seen = f"'{backend.base_model}', but the ART server at {backend.base_url} has {serving.base_model!r} alone"
        raise ConfigError(
            [f"trainer adapter: backend.base_model is {seen}"],
            hint=f"set `base_model: {serving.base_model}`, or start the server with `nat backend serve` and --model "
            f"{backend.base_model} (or its folder and --served_model_name)",
        )


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
