"""What Tinker's official clients send, on both of its wires."""

import asyncio
import struct

import httpx

from fakes.keys import KEY
from nat.backend.server.app import create_app
from nat.tinker.server.routes import tinker_router
from nat.tinker.server.wire import MESSAGES

DEADLINE = 60
TOKENS = [5, 6, 7, 8, 9, 10]
RL = {"logprobs": [-0.5] * 5, "advantages": [0.0, 0.0, 1.0, -1.0, 0.5]}


class Client:
    """Sends what the official clients send."""

    def __init__(self, models):
        app = create_app(models.worker, api_key=KEY, extra_routers=[tinker_router(models)])
        self.http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app=app, raise_app_exceptions=False),
            base_url="http://127.0.0.1/api/v1",
            headers={"X-API-Key": KEY},
        )
        self.models, self.session = models, None

    async def post(self, path, body=None, **more):
        return await self.http.post(path, **({"json": body} if body is not None else {}), **more)

    async def ok(self, path, body):
        answer = await self.post(path, body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    async def result(self, request_id):
        """Poll as clients do."""
        async with asyncio.timeout(DEADLINE):
            while (found := await self.ok("/retrieve_future", {"request_id": request_id})).get("type") == "try_again":
                pass
        return found

    async def done(self, path, body):
        return await self.result((await self.ok(path, body))["request_id"])

    async def model(self, number=0, **lora):
        if self.session is None:
            self.session = (await self.ok("/create_session", {"tags": [], "sdk_version": "0.38.0"}))["session_id"]
        body = {"session_id": self.session, "model_seq_id": number, "base_model": "owner/tiny"}
        return (await self.done("/create_model", {**body, "lora_config": {"rank": 4, "seed": 1, **lora}}))["model_id"]

    async def train(self, model, data, loss, *, seq=None, config=None, forward=False):
        kind = "forward" if forward else "forward_backward"
        given = {"data": data, "loss_fn": loss, "loss_fn_config": config}
        return await self.done(f"/{kind}", {"model_id": model, "seq_id": seq, f"{kind}_input": given})

    async def step(self, model, **adam):
        return await self.done("/optim_step", {"model_id": model, "adam_params": adam})


def datum(tokens, **inputs):
    """A datum of the JSON wire, whose targets are the tokens shifted by one."""
    values = {"target_tokens": tokens[1:], **inputs}
    tensors = {
        name: {"data": list(own), "dtype": "int64" if name == "target_tokens" else "float32", "shape": [len(own)]}
        for name, own in values.items()
    }
    chunk = {"type": "encoded_text", "tokens": list(tokens[:-1])}
    return {"model_input": {"chunks": [chunk]}, "loss_fn_inputs": tensors}


def protobuf(model, data, loss, *, seq=0, **config):
    """The same batch as a request of the protobuf wire."""
    message = MESSAGES["ForwardBackwardRequest"](model_id=model, seq_id=seq, loss_fn=loss)
    for each in data:
        added = message.data.add()
        ids = each["model_input"]["chunks"][0]["tokens"]
        added.model_input.add().encoded_text.tokens = struct.pack(f"<{len(ids)}i", *ids)
        for name, tensor in each["loss_fn_inputs"].items():
            values, kind = tensor["data"], "q" if tensor["dtype"] == "int64" else "f"
            own = added.loss_fn_inputs.add(key=name).value
            own.dense, own.dtype = struct.pack(f"<{len(values)}{kind}", *values), 2 if kind == "q" else 1
            own.shape.append(len(values))
    for key, value in config.items():
        message.loss_fn_config.add(key=key, value=value)
    return message.SerializeToString()


async def loss(client, model, name="cross_entropy", **inputs):
    found = await client.train(model, [datum(TOKENS, **inputs)], name, forward=True)
    return found["metrics"]["loss:sum"]


async def sample(client, path, **more):
    if client.session is None:
        await client.model()
    request = {"session_id": client.session, "sampling_session_seq_id": 0, "model_path": path}
    sampler = (await client.ok("/create_sampling_session", request))["sampling_session_id"]
    assert (await client.http.get(f"/samplers/{sampler}")).json()["model_path"] == path
    settings = {"max_tokens": 6, "seed": 3, "stop": [], **more}
    prompt = {"chunks": [{"type": "encoded_text", "tokens": TOKENS}]}
    body = {"sampling_session_id": sampler, "seq_id": 0, "num_samples": 2, "prompt": prompt}
    promise = await client.ok("/asample", {**body, "sampling_params": settings, "prompt_logprobs": True})
    assert promise["sample_sequence_ids"] == [f"{promise['request_id']}:0", f"{promise['request_id']}:1"]
    return await client.result(promise["request_id"])
