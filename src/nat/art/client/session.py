"""One run's model on an ART server: registered, served, trained, and sampled by the workflow's LLMs."""

import logging
from collections.abc import Mapping, Sequence

from nat.art.client.client import ArtClient, Inference
from nat.art.client.config import ARTBackendConfig, ARTTrainingConfig
from nat.art.client.job import Report
from nat.art.client.requests import art_model, model_body, prepare_body, train_body
from nat.art.client.routing import check_base_model, notice, sampling_warnings, served_as, trained_llms
from nat.art.wire import ArtTrajectoryGroup
from nat.capture.redirect import Redirects, address_of
from nat.data_models.finetuning import ServedModel
from nat.data_models.llm import ModelEndpoint
from nat.errors import BackendError
from nat.finetuning.interfaces.lifecycle import check_ready
from nat.finetuning.run_context import current_run

logger = logging.getLogger(__name__)


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
        self._body = model_body(self._model)
        self._client = client
        self._llms = llms
        self._redirects = redirects
        self._trained: Mapping[str, ModelEndpoint] = {}
        self._served = backend.name
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
        return self._trained.keys() | self._models | {self._served, self._backend.name}

    @property
    def _models(self) -> set[str]:
        return {llm.model for llm in self._trained.values()}

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
        self._connected = await self._client.prepare(prepare_body(self._model, self._backend))
        self.warnings = []
        if (serving := self._inference.serving) is not None:
            check_base_model(serving, self._backend)
            self.warnings += [f"The ART server at {self._backend.base_url}: {note}" for note in serving.notes]
        logger.info("Successfully registered with ART backend.")
        url = self._inference.base_url
        if self._llms is not None:
            self._trained = trained_llms(self._llms, self._backend, inference_url=url, target=target_model)
        await self._ask_for_newest()
        for key, llm in self._trained.items():
            if llm.model != self._served:
                _tell(notice(key, llm, self._served))
        self.warnings += [] if sampling_replaced else sampling_warnings(self._trained)

    async def check(self) -> None:
        """Raise BackendError unless the control routes answer and, once connected, inference serves the model."""
        await self._client.check_health()
        if self._connected is not None:
            await self._served_name()

    async def train(self, groups: Sequence[ArtTrajectoryGroup], report: Report) -> str:
        """Make one update; returns the name of the new weights, which are then served."""
        if self._backend.delete_old_checkpoints:
            await self._delete_old_checkpoints()
        async for metrics in self._client.train(train_body(self._model, groups, self._training)):
            report(metrics)
        await self._ask_for_newest()
        return await self.version()

    async def served_model(self) -> ServedModel:
        """The newest weights, and the options with which the run's YAML calls them."""
        return ServedModel(
            name=await self.version(),
            base_url=self._inference.base_url,
            overrides=tuple((f"llms.{key}.model_name", self._served) for key in self._trained),
        )

    async def keep_best(self) -> str:
        """Keep the newest step until this is called again; returns the name of its weights."""
        self._best_step = await self._client.step(self._body)
        return f"{self._backend.name}@{self._best_step}"

    async def version(self) -> str:
        """The name of the newest weights."""
        return f"{self._backend.name}@{await self._client.step(self._body)}"

    async def _served_name(self) -> str:
        names = await self._client.served_names(self._inference)
        return served_as(names, self._backend, inference_url=self._inference.base_url)

    async def _ask_for_newest(self) -> None:
        """Redirect to the newest name: servers that serve no plain name have a new one after each update."""
        self._served = await self._served_name()
        server = address_of(self._inference.base_url)
        assert server is not None, "an LLM calls it"
        for name in self._models | {self._backend.name}:
            self._redirects.send(server, name, self._served)

    async def _delete_old_checkpoints(self) -> None:
        try:
            newest = await self._client.step(self._body)
            keep = [newest] if self._best_step is None else sorted({self._best_step, newest})
            await self._client.delete_checkpoints(self._body, keep=keep)
        except BackendError as error:
            logger.warning("Old checkpoints could not be deleted: %s", error)


def _tell(text: str) -> None:
    """Log a text, and show it where the run is watched live."""
    logger.info("%s", text)
    run = current_run()
    if run is not None:
        run.say(text)
