"""vLLM's routes on a real socket, with the numbers of a real tiny model; a test chooses what goes wrong.

The model is the server's own copy: it changes only by an adapter or by weights that are loaded from a folder.
"""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse
from peft import set_peft_model_state_dict
from safetensors.torch import load_file

from fakes.processes import free_port
from nat.backend.attention import packed_logits
from nat.backend.lora import LoraSettings
from nat.backend.model import SOLE_ADAPTER
from nat.backend.model_loader import load_model
from nat.backend.tree_attention import PackedTree

GUARDED = ("/v1", "/inference")
TOKENS_PER_EVENT = 3
"""Of a stream."""


class FakeVllm:
    """A vLLM server with a model of its own; `calls` has the path of each control call and each adapter's name."""

    def __init__(self, path: Path, *, lora_rank: int | None = None) -> None:
        self.lora = None if lora_rank is None else LoraSettings(lora_rank)
        self.loaded = load_model(path, lora=self.lora, device="cpu")
        self.calls: list[str] = []
        self.models: list[str] = []
        """The model that each sampling request named."""
        self.version = "0.32.0"
        self.key: str | None = None
        """The key that this server requires, on the routes that vLLM guards."""
        self.absent: set[str] = set()
        """Routes that this server does not have."""
        self.failing: set[str] = set()
        """Routes that answer 500."""
        self.instead: dict[str, Response] = {}
        """Routes that answer this."""
        self.ignores_weights = False
        """True if loading succeeds and changes nothing."""
        self.raw_logprobs = False
        """True if log probabilities are those before the temperature."""
        self.script: list[int] = []
        """Tokens that every answer begins with."""
        self.finish: str | None = None
        """A finish reason that ends every answer after its first token."""
        self.spoils: Callable[[dict[str, Any]], object] = lambda answer: answer
        """Changes each answer."""
        self.entered = threading.Event()
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.context = self.loaded.max_seq_length
        """Tokens of prompt and answer that this server takes."""
        self.stamp = "default"
        self._path = path
        self.base = "base"
        """The name of the model itself."""
        self.adapters: dict[str, Path] = {"base": path}
        self._zero = {name: p.detach().clone() for name, p in self.loaded.trainable_parameters().items()}
        port = free_port()
        self._port, self._url = port, f"http://127.0.0.1:{port}"

    @property
    def url(self) -> str:
        return self._url

    def start_again(self) -> None:
        """Lose adapters and weights, as a server that its user starts again."""
        self.loaded = load_model(self._path, lora=self.lora, device="cpu")
        self.stamp, self.adapters = "default", {"base": self._path}

    @contextmanager
    def running(self) -> Iterator["FakeVllm"]:
        """Serve in a thread until the end of the block."""
        config = uvicorn.Config(
            self.app(), port=self._port, log_config=None, lifespan="off", timeout_graceful_shutdown=1
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            thread.join(0.01)
        try:
            yield self
        finally:
            server.should_exit = True
            thread.join()

    def app(self) -> FastAPI:
        app = FastAPI()

        @app.middleware("http")
        async def scripted(request: Request, call_next: Any) -> Response:
            path = request.url.path
            if path in self.absent | self.instead.keys():
                return self.instead.get(path) or JSONResponse({"detail": "Not Found"}, 404)
            sent = request.headers.get("authorization")
            if self.key is not None and path.startswith(GUARDED) and sent != f"Bearer {self.key}":
                return JSONResponse({"error": "Unauthorized"}, 401)
            body = await request.body()
            if path in self.failing and body != b"{}":
                self.calls.append(path)
                return JSONResponse({"error": {"message": f"scripted failure of {path}"}}, 500)
            return await call_next(request)

        @app.get("/health")
        async def health() -> Response:
            return Response()

        @app.get("/version")
        async def version() -> dict[str, str]:
            return {"version": self.version}

        @app.get("/v1/models")
        async def models() -> dict[str, Any]:
            parents = {name: None if name == "base" else "base" for name in self.adapters}
            names = {"base": self.base}
            cards = [(names.get(name, name), parent) for name, parent in parents.items()]
            return {"data": [{"id": n, "parent": p, "max_model_len": self.context} for n, p in cards]}

        for path in ("/pause", "/resume"):
            app.add_api_route(path, self._control, methods=["POST"])
        app.add_api_route("/reset_prefix_cache", self._reset, methods=["POST"])
        app.add_api_route("/update_weight_version", self._name_weights, methods=["POST"])
        app.add_api_route("/collective_rpc", self._rpc, methods=["POST"])
        app.add_api_route("/v1/load_lora_adapter", self._load, methods=["POST"])
        app.add_api_route("/v1/unload_lora_adapter", self._unload, methods=["POST"])
        app.add_api_route("/inference/v1/generate", self._generate, methods=["POST"])
        return app

    async def _control(self, request: Request) -> dict[str, str]:
        self.calls.append(request.url.path)
        return {"status": "done"}

    async def _reset(self) -> dict[str, bool]:
        self.calls.append("/reset_prefix_cache")
        return {"success": "reset" not in self.failing}

    async def _name_weights(self, request: Request) -> dict[str, bool]:
        self.stamp = (await request.json())["new_version"]
        return {"success": True}

    async def _rpc(self, request: Request) -> Response:
        body = await request.json()
        if not body:
            return JSONResponse({"detail": "Missing 'method' in request body"}, 400)
        self.calls.append(body["method"])
        weights = load_file(Path(body["kwargs"]["weights_path"]) / "model.safetensors")
        if not self.ignores_weights:
            self.loaded.model.load_state_dict(weights, strict=False)
        return JSONResponse({"results": [None]})

    async def _load(self, request: Request) -> Response:
        body = await request.json()
        if not body:
            return JSONResponse({"error": {"message": "no name"}}, 400)
        name, folder = body["lora_name"], Path(body["lora_path"])
        self.calls.append(f"load {name.rpartition('-')[2]}")
        if name in self.adapters:
            return JSONResponse({"error": {"message": f"{name} is loaded already"}}, 400)
        assert (folder / "adapter_config.json").is_file()
        self.adapters[name] = folder
        return Response("Success")

    async def _unload(self, request: Request) -> Response:
        name = (await request.json())["lora_name"]
        if name not in self.adapters:
            return JSONResponse({"error": {"message": f"{name} is not loaded"}}, 404)
        self.calls.append(f"unload {name.rpartition('-')[2]}")
        del self.adapters[name]
        return Response("Success")

    async def _generate(self, request: Request) -> Response:
        body = await request.json()
        if not body:
            return JSONResponse({"error": {"message": "token_ids is missing"}}, 400)
        if body["model"] not in self.adapters:
            return JSONResponse({"error": {"message": f"The model `{body['model']}` does not exist."}}, 404)
        self.models.append(body["model"])
        self.entered.set()
        while not self.may_answer.is_set():
            await asyncio.sleep(0.005)
            if await request.is_disconnected() or body["model"] not in self.adapters:
                return Response()
        self._activate(body["model"])
        tokens = self._sample(body["token_ids"], body["sampling_params"])
        if not body.get("stream"):
            whole = self.spoils(self._answer(tokens, cached=len(body["token_ids"]) - 1))
            return Response(json.dumps(whole), media_type="application/json")
        parts = [tokens[at : at + TOKENS_PER_EVENT] for at in range(0, len(tokens), TOKENS_PER_EVENT)]
        events = [f"data: {json.dumps(self.spoils(self._answer(part)))}\n\n" for part in parts]
        return StreamingResponse(iter([*events, "data: [DONE]\n\n"]), media_type="text/event-stream")

    def _activate(self, name: str) -> None:
        if self.lora is None:
            return
        if name == "base" or self.ignores_weights:
            for key, weight in self.loaded.trainable_parameters().items():
                weight.data.copy_(self._zero[key])
            return
        weights = load_file(self.adapters[name] / "adapter_model.safetensors")
        set_peft_model_state_dict(self.loaded.peft, weights, adapter_name=SOLE_ADAPTER)

    @torch.no_grad()
    def _sample(self, prompt: list[int], params: dict[str, Any]) -> list[dict[str, Any]]:
        generator = torch.Generator().manual_seed(params.get("seed") or 0)
        ids, tokens = list(prompt), []
        while True:
            logits = _logits(self.loaded.model, ids)
            temperature = params["temperature"] or 1.0
            scaled = (logits / temperature).log_softmax(-1)
            drawn = int(torch.multinomial(scaled.exp(), 1, generator=generator))
            token_id = drawn if params["temperature"] else int(logits.argmax())
            token_id = self.script[len(tokens)] if len(tokens) < len(self.script) else token_id
            reported = logits.log_softmax(-1) if self.raw_logprobs else scaled
            others = params.get("logprob_token_ids") or reported.topk(params["logprobs"]).indices.tolist()
            listed = list(dict.fromkeys([token_id, *others]))[: max(params["logprobs"], 1)]
            ids.append(token_id)
            reason = self.finish
            if token_id in params.get("stop_token_ids", []):
                reason = reason or "stop"
            elif len(tokens) + 1 == params["max_tokens"]:
                reason = reason or "length"
            top = [{"token_id": i, "logprob": float(reported[i])} for i in listed]
            tokens.append(
                {"token_id": token_id, "logprob": float(reported[token_id]), "top": top, "finish_reason": reason}
            )
            if reason is not None:
                return tokens

    def _answer(self, tokens: list[dict[str, Any]], cached: int | None = None) -> dict[str, Any]:
        content = [
            {"token_id": t["token_id"], "logprob": t["logprob"], "rank": 1, "top_logprobs": t["top"]} for t in tokens
        ]
        reason = tokens[-1]["finish_reason"]
        span = {"version": self.stamp, "start": 0, "end": len(tokens)}
        choice = {
            "index": 0,
            "token_ids": [t["token_id"] for t in tokens],
            "logprobs": {"content": content},
            "finish_reason": reason,
            "weight_versions": None if reason is None else [span],
        }
        usage = None if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
        return {"request_id": "r", "choices": [choice], "usage": usage}


def _logits(model: torch.nn.Module, ids: list[int]) -> torch.Tensor:
    """Logits after a prompt, computed as a new prompt each time."""
    batch = PackedTree([ids], model.device)
    return packed_logits(model, batch, torch.tensor([len(ids) - 1]))[0].float()
