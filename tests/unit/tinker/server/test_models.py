"""Many models on one base, and what they save."""

import io
import tarfile

import pytest

from fakes.tinker_client import TOKENS, datum, loss
from nat.tinker.server import models as models_module
from nat.tinker.server.models import WeightsPath


async def test_many_models_on_one_base_and_the_place_of_a_silent_client(clients):
    """Models train apart from each other; a full server refuses, until a client sends no heartbeat any more."""
    client = clients(max_models=2)
    first, second = await client.model(0), await client.model(1, seed=2)
    untrained = await loss(client, second)
    await client.train(first, [datum(TOKENS)], "cross_entropy")
    await client.train(second, [datum(TOKENS[::-1])], "cross_entropy")
    await client.step(first, learning_rate=1e-2)
    assert await loss(client, second) == pytest.approx(untrained)
    assert (await client.step(second, learning_rate=1e-2))["metrics"]["grad_norm"] > 0
    new = {"session_id": client.session, "model_seq_id": 2, "base_model": "tiny"}
    refused = await client.done("/create_model", new)
    assert "holds 2 models" in refused["error"]
    assert (await client.http.post(f"/sessions/{client.session}/finish", json={})).status_code == 200
    client.session = None
    assert await client.model(0)
    assert (await client.post("/get_info", {"model_id": first})).status_code == 400


async def test_weights_without_a_name_do_not_pile_up(client, monkeypatch):
    """Of those, the newest stay; a name is used once, unless the client says so."""
    monkeypatch.setattr(models_module, "MAX_UNNAMED", 2)
    model = await client.model()
    for _ in range(4):
        await client.done("/save_weights_for_sampler", {"model_id": model})
    listed = (await client.http.get(f"/training_runs/{model}/checkpoints")).json()["checkpoints"]
    assert len(listed) == 2
    await client.done("/save_weights", {"model_id": model, "path": "s"})
    again = await client.done("/save_weights", {"model_id": model, "path": "s"})
    assert "exists already" in again["error"]
    assert "path" in await client.done("/save_weights", {"model_id": model, "path": "s", "overwrite": True})


@pytest.mark.parametrize("kind", ["", "sampler_weights/", "weights/"])
async def test_saved_weights_can_be_downloaded_and_deleted(client, kind):
    """As an adapter that peft reads; without a kind, the name is that of weights for sampling."""
    model = await client.model()
    save = "/save_weights" if kind == "weights/" else "/save_weights_for_sampler"
    path = WeightsPath.parse((await client.done(save, {"model_id": model, "path": "w"}))["path"])
    address = f"/training_runs/{model}/checkpoints/{kind}w"
    answer = await client.http.get(f"{address}/archive")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        found = {name: archive.extractfile(name).read() for name in archive.getnames()}
    assert set(found) == {"adapter_config.json", "adapter_model.safetensors"}
    assert all((client.models.folder(path) / name).read_bytes() == content for name, content in found.items())
    assert (await client.http.delete(address)).status_code == 204
    refused = [await client.http.get(f"{address}/archive"), await client.http.delete(address)]
    refused += [
        await client.http.delete(f"/training_runs/{model}/checkpoints/{name}") for name in ("state/w", "%2e%2e")
    ]
    assert {each.status_code for each in refused} <= {400, 404}
    assert (await client.done(save, {"model_id": model, "path": "w"}))["path"] == str(path)


def test_paths_name_weights_of_this_server_only():
    """A path goes through its text and back."""
    text = f"tinker://{'a' * 32}:train:3/sampler_weights/step-1"
    assert str(WeightsPath.parse(text)) == text
