"""Open the server for Tinker's clients from 0.20 (JSON) to 0.38 (protobuf): one base model, and their adapters."""

import asyncio
import os
import tarfile
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from fastapi import APIRouter
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response, StreamingResponse
from torch import Tensor

from nat.backend.models import load_base
from nat.backend.protocol import Endpoint, Opened
from nat.backend.server.bodies import read
from nat.backend.server.generation import answered
from nat.backend.training.batch import Row
from nat.files import remove_unfinished
from nat.http.asgi import MAX_BODY_BYTES
from nat.http.errors import ApiError
from nat.tinker.options import TinkerServeOptions
from nat.tinker.server import wire
from nat.tinker.server.futures import Futures, Result
from nat.tinker.server.losses import resolved, rows_of
from nat.tinker.server.models import UNNAMED, TinkerModels, WeightsPath
from nat.tinker.server.sampling import sample_result, sequences_of
from nat.wire.extras import install_hint, missing_packages

PREFIX = "/api/v1"
_BASE = "base"
_NOTICE = "adapters of this server are on attention and MLP layers: train_unembed has no effect"
B = TypeVar("B", bound=wire.Body)
Answer = dict[str, Any]


@contextmanager
def open_tinker(options: TinkerServeOptions, endpoint: Endpoint) -> Iterator[Opened]:
    """Load the base model; clients' adapters are made or loaded on request."""
    for folder in options.output_dir.glob("*/*/*weights"):
        remove_unfinished(folder)
    models = TinkerModels(load_base(options), options)
    url = f"http://{options.host}:{endpoint.ports['port']}"
    greeting = (
        f"Serving {models.name} for Tinker's clients; saved weights are in {options.output_dir}.\n"
        f'Next: TINKER_BASE_URL={url} TINKER_API_KEY=KEY, then create_lora_training_client("{models.name}").'
    )
    try:
        yield Opened(models.worker, [tinker_router(models)], greeting=greeting)
    finally:
        models.worker.close()


def tinker_router(models: TinkerModels) -> APIRouter:
    """All routes of the protocol that this server has."""
    routes, router = _Routes(models), APIRouter()
    # One chunk after another, so that a gradient is summed in the same order each time.
    config = {"parallel_fwdbwd_chunks": False, "create_model_via_load_weights": True, "use_pyqwest_transport": False}
    _add(router, "/client/config", wire.NewSession, lambda _: config)
    _add(router, "/client/dynamic_config", wire.NewSession, lambda _: {})
    _add(router, "/create_session", wire.NewSession, routes.create_session)
    _add(router, "/session_heartbeat", wire.OfSession, routes.heartbeat)
    _add(router, "/create_model", wire.NewModel, routes.create_model)
    _add(router, "/get_info", wire.OfModel, routes.info)
    _add(router, "/unload_model", wire.OfModel, routes.unload)
    _add(router, "/optim_step", wire.Step, routes.step)
    _add(router, "/save_weights", wire.Save, routes.save)
    _add(router, "/save_weights_for_sampler", wire.Save, routes.save_for_sampler)
    _add(router, "/load_weights", wire.Load, routes.load)
    _add(router, "/weights_info", wire.OfPath, routes.weights_info)
    _add(router, "/create_sampling_session", wire.NewSampler, routes.create_sampler)
    _add(router, "/asample", wire.Sample, routes.sample)
    for method, path, handler in (
        ("GET", "/healthz", routes.health),
        ("GET", "/get_server_capabilities", routes.capabilities),
        ("POST", "/telemetry", routes.telemetry),
        ("POST", "/sessions/{session_id}/finish", routes.finish),
        ("POST", "/forward", routes.forward),
        ("POST", "/forward_backward", routes.forward_backward),
        ("POST", "/retrieve_future", routes.retrieve),
        ("GET", "/samplers/{sampler_id}", routes.sampler),
        ("GET", "/training_runs/{model_id}/checkpoints", routes.checkpoints),
        ("GET", "/training_runs/{model_id}/checkpoints/{checkpoint_id:path}/archive", routes.archive),
        ("DELETE", "/training_runs/{model_id}/checkpoints/{checkpoint_id:path}", routes.delete),
    ):
        router.add_route(PREFIX + path, handler, methods=[method])
    return router


def _add(router: APIRouter, path: str, kind: type[B], answer: Callable[[B], Answer]) -> None:
    async def handle(http: HttpRequest) -> Response:
        return JSONResponse(answer(await read(http, kind)))

    router.add_route(PREFIX + path, handle, methods=["POST"])


class _Routes:
    """Handlers on the models; what takes long is answered by the id under which its result can be polled."""

    def __init__(self, models: TinkerModels) -> None:
        self._models = models
        self._futures = Futures()

    async def health(self, _: HttpRequest) -> Response:
        return JSONResponse({"status": "ok"})

    async def telemetry(self, _: HttpRequest) -> Response:
        """Nothing is kept of what clients tell of themselves."""
        return JSONResponse({"status": "accepted"})

    async def capabilities(self, _: HttpRequest) -> Response:
        able = {"max_context_length": self._models.base.max_seq_length, "trainable": True, "sampleable": True}
        return JSONResponse({"supported_models": [{"model_name": self._models.name, **able}]})

    def create_session(self, _: wire.NewSession) -> Answer:
        session = uuid.uuid4().hex
        self._hear(session)
        return {"type": "create_session", "session_id": session, "info_message": _NOTICE}

    def heartbeat(self, body: wire.OfSession) -> Answer:
        self._hear(body.session_id)
        return {"type": "session_heartbeat"}

    async def finish(self, http: HttpRequest) -> Response:
        """The models of a client that is done give their places to others first."""
        self._models.heard.pop(http.path_params["session_id"], None)
        return JSONResponse({"type": "finish_session"})

    def create_model(self, body: wire.NewModel) -> Answer:
        self._models.check_base(body.base_model)
        self._hear(body.session_id)
        model_id = f"{body.session_id}:train:{body.model_seq_id}"
        rank, seed = (None, None) if (lora := body.lora_config) is None else (lora.rank, lora.seed)
        done = {"type": "create_model", "model_id": model_id}
        return self._promise((model_id, 0), lambda: _then(self._models.create(model_id, rank, seed), done))

    def info(self, body: wire.OfModel) -> Answer:
        model, arch = self._models.model(body.model_id), type(self._models.base.model).__name__
        data = {"arch": arch, "model_name": self._models.name, "tokenizer_id": self._models.tokenizer}
        named = {"model_data": data, "model_id": body.model_id, "model_name": self._models.name}
        return {**named, "is_lora": model.rank > 0, "lora_rank": model.rank}

    def unload(self, body: wire.OfModel) -> Answer:
        done = {"type": "unload_model", "model_id": body.model_id}
        return done | self._promise((None, None), lambda: _then(self._models.unload(body.model_id), done))

    async def forward(self, http: HttpRequest) -> Response:
        """A forward pass for clients up to 0.20; later ones send a flag."""
        return await self._run(await asyncio.to_thread(wire.batch_of_json, await http.body(), forward_only=True))

    async def forward_backward(self, http: HttpRequest) -> Response:
        body = await http.body()
        if encoding := http.headers.get("content-encoding"):
            body = await asyncio.to_thread(_decompressed, body, encoding)
        if http.headers.get("content-type", "").startswith(wire.PROTOBUF):
            return await self._run(await asyncio.to_thread(wire.batch_of_protobuf, body))
        return await self._run(await asyncio.to_thread(wire.batch_of_json, body, forward_only=False))

    def step(self, body: wire.Step) -> Answer:
        async def step() -> Result:
            metrics = await asyncio.wrap_future(self._models.step(body.model_id, body.adam_params))
            return Result(lambda: {"metrics": metrics})

        return self._of_model(body, step)

    def save(self, body: wire.Save) -> Answer:
        path = WeightsPath(body.model_id, "weights", body.path or f"state-{uuid.uuid4().hex}")
        return self._save(body, path, {"type": "save_weights"})

    def save_for_sampler(self, body: wire.Save) -> Answer:
        """Save for sampling; weights without a name get a sampling session at once."""
        path = WeightsPath(body.model_id, "sampler_weights", body.path or f"{UNNAMED}{uuid.uuid4().hex}")
        sampler = None if body.path is not None else _sampler_id(path)
        return self._save(body, path, {"type": "save_weights_for_sampler", "sampling_session_id": sampler})

    def load(self, body: wire.Load) -> Answer:
        source, new = WeightsPath.parse(body.path), body.session_id is not None
        if (body.model_id is None) != new:
            raise ApiError("wanted is either model_id, or session_id with model_seq_id", status=422, param="model_id")
        if body.base_model is not None:
            self._models.check_base(body.base_model)
        self._models.folder(source)
        model_id = body.model_id or f"{body.session_id}:train:{body.model_seq_id}"
        if body.session_id is not None:
            self._hear(body.session_id)
        else:
            self._models.model(model_id)
        done = {"type": "load_weights", "path": body.path, "model_id": model_id}
        load = self._models.load
        key = (model_id, 0 if new else body.seq_id)
        return self._promise(key, lambda: _then(load(model_id, source, optimizer=body.optimizer), done))

    def weights_info(self, body: wire.OfPath) -> Answer:
        rank = self._models.rank(WeightsPath.parse(body.tinker_path))
        layers = {"train_unembed": rank == 0, "train_mlp": True, "train_attn": True}
        return {"base_model": self._models.name, "is_lora": rank > 0, "lora_rank": rank, **layers}

    def create_sampler(self, body: wire.NewSampler) -> Answer:
        self._hear(body.session_id)
        return {"sampling_session_id": _sampler_id(self._sampled(body.model_path, body.base_model))}

    async def sampler(self, http: HttpRequest) -> Response:
        sampler = http.path_params["sampler_id"]
        path = _sampled_path(sampler)
        named = {"base_model": self._models.name, "model_path": None if path is None else str(path)}
        return JSONResponse({"sampler_id": sampler, **named})

    def sample(self, body: wire.Sample) -> Answer:
        if body.sampling_session_id is None:
            path = self._sampled(body.model_path, body.base_model)
        elif (path := _sampled_path(body.sampling_session_id)) is not None:
            self._models.folder(path)
        sequences, name = sequences_of(body, self._models.base), "" if path is None else str(path)

        async def sample() -> Result:
            return sample_result(body, await answered(self._models.worker, sequences, model=name))

        promise = self._promise(
            (body.sampling_session_id, body.seq_id),
            sample,
            sum(len(s.prompt_ids) + 2 * s.params.max_tokens for s in sequences),
        )
        ids = [f"{promise['request_id']}:{number}" for number in range(body.num_samples)]
        return {**promise, "sample_sequence_ids": ids}

    async def retrieve(self, http: HttpRequest) -> Response:
        body = await read(http, wire.OfRequest)
        found = await self._futures.poll(body.request_id)
        if found.protobuf is not None and wire.PROTOBUF in http.headers.get("accept", ""):
            return Response(await asyncio.to_thread(found.protobuf), media_type=wire.PROTOBUF)
        return JSONResponse(await asyncio.to_thread(found.json))

    async def checkpoints(self, http: HttpRequest) -> Response:
        model_id = WeightsPath.parse(f"tinker://{http.path_params['model_id']}/weights/any").model_id
        found = []
        for path in await asyncio.to_thread(self._models.saved, model_id):
            kind = "training" if path.kind == "weights" else "sampler"
            written = datetime.fromtimestamp(self._models.folder(path).stat().st_mtime, UTC).isoformat()
            named = {"checkpoint_id": f"{path.kind}/{path.name}", "tinker_path": str(path)}
            found.append({**named, "checkpoint_type": kind, "time": written})
        return JSONResponse({"checkpoints": found})

    async def archive(self, http: HttpRequest) -> Response:
        """An adapter in PEFT's format, or a model, as a tar archive; a name without a kind is of sampler weights."""
        files = await asyncio.to_thread(self._models.files, _saved_path(http))
        return StreamingResponse(_archive(files), media_type="application/x-tar")

    async def delete(self, http: HttpRequest) -> Response:
        await asyncio.wrap_future(self._models.delete(_saved_path(http)))
        return Response(status_code=204)

    async def _run(self, batch: wire.Batch) -> Response:
        """Check a batch before its request is accepted, so that a mistake is the answer to it."""
        values = sum(len(each.token_ids) + sum(map(len, each.inputs.values())) for each in batch.data)
        self._models.model(batch.model_id)
        loss = resolved(batch.loss, batch.config)
        rows = await asyncio.to_thread(rows_of, batch, self._models.base)

        async def run() -> Result:
            work = self._models.accumulate(batch.model_id, rows, loss, gradient=not batch.forward_only)
            return await asyncio.to_thread(_loss_result, batch, rows, *await asyncio.wrap_future(work))

        return JSONResponse(self._promise((batch.model_id, batch.seq_id or None), run, values))

    def _save(self, body: wire.Save, path: WeightsPath, done: Answer) -> Answer:
        save, answer = self._models.save, {**done, "path": str(path)}
        return self._of_model(body, lambda: _then(save(path, overwrite=body.overwrite), answer))

    def _of_model(self, body: wire.OfModel, start: Callable[[], Coroutine[Any, Any, Result]]) -> Answer:
        self._models.model(body.model_id)
        return self._promise((body.model_id, body.seq_id), start)

    def _promise(
        self, key: tuple[str | None, int | None], start: Callable[[], Coroutine[Any, Any, Result]], values: int = 1
    ) -> Answer:
        """Begin a request, once however often one of this key is sent, and say where its result will be.

        A key without a number means a request of its own.
        """
        request_id = uuid.uuid4().hex if None in key else "{}:{}".format(*key)
        self._futures.begin(request_id, start, values=values)
        return {"request_id": request_id}

    def _hear(self, session: str) -> None:
        self._models.heard[session] = time.monotonic()

    def _sampled(self, path: str | None, base: str | None) -> WeightsPath | None:
        """The weights to sample from, None for the base; both must be here."""
        if path is None:
            self._models.check_base(base or "")
            return None
        found = WeightsPath.parse(path)
        self._models.folder(found)
        return found


def _saved_path(http: HttpRequest) -> WeightsPath:
    model_id, checkpoint_id = http.path_params["model_id"], http.path_params["checkpoint_id"]
    return WeightsPath.parse(f"tinker://{model_id}/{'' if '/' in checkpoint_id else 'sampler_weights/'}{checkpoint_id}")


def _archive(paths: Sequence[Path]) -> Iterator[bytes]:
    """A tar archive of files, as it is read: a slow client takes neither disk nor memory."""
    with ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]  # readable when deleted
        for path, file in zip(paths, files, strict=True):
            entry = tarfile.TarInfo(path.name)
            entry.size = os.fstat(file.fileno()).st_size
            yield entry.tobuf()
            yield from iter(partial(file.read, 2**20), b"")
            yield bytes(-entry.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _sampler_id(path: WeightsPath | None) -> str:
    """A new sampling session; its id has all that it stands for, so it survives a restart."""
    return f"{_BASE if path is None else str(path).removeprefix('tinker://').replace('/', '~')}~{uuid.uuid4().hex}"


def _sampled_path(sampler: str) -> WeightsPath | None:
    """What a sampling session samples from, None for the base; NameRefused if it is none of this server's."""
    name, _, _ = sampler.rpartition("~")
    return None if name == _BASE else WeightsPath.parse("tinker://" + name.replace("~", "/"))


async def _then(work: Future[None], answer: Mapping[str, Any]) -> Result:
    await asyncio.wrap_future(work)
    return Result(lambda: dict(answer))


def _decompressed(content: bytes, encoding: str) -> bytes:
    """The body without its compression, within the limit of all bodies."""
    if encoding != "zstd" or missing_packages(["zstandard"]):
        raise ApiError(f"content-encoding {encoding!r}: send none; for zstd, {install_hint('tinker')}", status=415)
    import zstandard

    try:
        with zstandard.ZstdDecompressor(max_window_size=MAX_BODY_BYTES).stream_reader(content) as reader:
            found: bytes = reader.read(MAX_BODY_BYTES + 1)
    except zstandard.ZstdError as error:
        raise ApiError(f"the body is not compressed by zstd: {error}") from error
    if len(found) > MAX_BODY_BYTES:
        raise ApiError(f"the body has more than {MAX_BODY_BYTES} bytes without its compression", status=413)
    return found


def _loss_result(batch: wire.Batch, rows: Sequence[Row], total: float, by_row: Mapping[int, Tensor]) -> Result:
    """A loss's sum, and the log probability of each target of each datum."""
    logprobs = [np.empty(len(datum.token_ids), "<f4") for datum in batch.data]
    for row in rows:
        logprobs[row.rollout][row.positions] = by_row[row.index].float().cpu().numpy()

    def json() -> Answer:
        outputs = [{"logprobs": {"data": x.tolist(), "dtype": "float32", "shape": [len(x)]}} for x in logprobs]
        return {"loss_fn_output_type": "ArrayRecord", "loss_fn_outputs": outputs, "metrics": {"loss:sum": total}}

    def protobuf() -> bytes:
        output = wire.MESSAGES["ForwardBackwardOutput"](loss_fn_output_type="ArrayRecord")
        output.metrics.add(key="loss:sum", value=total)
        values = output.loss_fn_outputs.add(num_datums=len(logprobs)).fields.add(key="logprobs").value
        values.data, values.dtype = np.concatenate(logprobs).tobytes(), 1
        values.offsets = np.cumsum([0, *(x.nbytes for x in logprobs)], dtype="<i8").tobytes()
        content: bytes = output.SerializeToString()
        return content

    return Result(json, protobuf)
