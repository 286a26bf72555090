"""Many models on one base, and what they save."""

import io
import tarfile

import pytest

from fakes.tinker_client import TOKENS, datum, loss, sample
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


@pytest.mark.slow
async def test_all_weights_of_one_model_are_trained_beside_adapters(clients):
    """Rank 0 asks for them; the base and adapters on it stay as they were, and a second such model is refused."""
    client = clients(all_weights=True)
    whole, adapter = await client.model(0, rank=0), await client.model(1)
    info, untrained = await client.ok("/get_info", {"model_id": whole}), await loss(client, adapter)
    assert (info["is_lora"], info["lora_rank"]) == (False, 0)
    assert await loss(client, whole) == pytest.approx(untrained)
    await client.train(whole, [datum(TOKENS)], "cross_entropy")
    await client.step(whole, learning_rate=1e-2)
    trained = await loss(client, whole)
    assert trained < untrained == await loss(client, adapter)
    paths = []
    for _ in range(1 + models_module.MAX_UNNAMED_MODELS):
        saved = await client.done("/save_weights_for_sampler", {"model_id": whole})
        paths.append(WeightsPath.parse(saved["path"]))
        found = await sample(client, str(paths[-1]))
    assert [path for path in paths if path in client.models.saved(whole)] == paths[1:]
    assert -sum(found["prompt_logprobs"][1:]) == pytest.approx(trained, abs=1e-4)
    new = {"session_id": client.session, "model_seq_id": 2, "base_model": "tiny", "lora_config": {"rank": 0}}
    assert "holds all weights of one model" in (await client.done("/create_model", new))["error"]
    for _ in range(2):
        assert (await client.done("/unload_model", {"model_id": whole}))["model_id"] == whole
    assert await client.model(3, rank=0)


@pytest.mark.slow
async def test_all_weights_go_on_from_a_saved_state(clients):
    """After a restart, too, and with the optimizer's state: the next step is that of the model that was saved."""
    found = []
    for number in range(2):
        client = clients(all_weights=True)
        model = await client.model(number, rank=0)
        if not number:
            await client.train(model, [datum(TOKENS)], "cross_entropy")
            await client.step(model, learning_rate=1e-2)
            state = (await client.done("/save_weights", {"model_id": model, "path": "s"}))["path"]
            info = await client.ok("/weights_info", {"tinker_path": state})
            assert (info["is_lora"], info["lora_rank"], info["train_unembed"]) == (False, 0, True)
        else:
            assert await loss(client, model) != pytest.approx(found[0])
            await client.done("/load_weights", {"model_id": model, "path": state, "optimizer": True})
        found.append(await loss(client, model))
        await client.train(model, [datum(TOKENS[::-1])], "cross_entropy")
        await client.step(model, learning_rate=1e-2)
        found.append(await loss(client, model))
    assert found[2:] == pytest.approx(found[:2], abs=1e-5)


@pytest.mark.parametrize("rank", [4, 0])
@pytest.mark.parametrize("kind", ["", "sampler_weights/", "weights/"])
async def test_saved_weights_can_be_downloaded_and_deleted(clients, kind, rank):
    """As an adapter that peft reads, or a model of transformers; without a kind, the name is of sampler weights."""
    client = clients(all_weights=rank == 0)
    model = await client.model(rank=rank)
    save = "/save_weights" if kind == "weights/" else "/save_weights_for_sampler"
    path = WeightsPath.parse((await client.done(save, {"model_id": model, "path": "w"}))["path"])
    (client.models.folder(path) / "additional_chat_templates").mkdir()  # as tokenizers with several have
    address = f"/training_runs/{model}/checkpoints/{kind}w"
    answer = await client.http.get(f"{address}/archive")
    with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
        found = {name: archive.extractfile(name).read() for name in archive.getnames()}
    wanted = {"adapter_config.json", "adapter_model.safetensors"} if rank else {"config.json", "model.safetensors"}
    assert set(found) == wanted if rank else set(found) > wanted
    assert {"state.json", "optimizer.safetensors", "manifest.json"}.isdisjoint(found)
    assert all((client.models.folder(path) / name).read_bytes() == content for name, content in found.items())
    assert (await client.http.delete(address)).status_code == 204
    refused = [await client.http.get(f"{address}/archive"), await client.http.delete(address)]
    refused += [
        await client.http.delete(f"/training_runs/{model}/checkpoints/{name}") for name in ("state/w", "%2e%2e")
    ]
    assert {each.status_code for each in refused} <= {400, 404}
    assert (await client.done(save, {"model_id": model, "path": "w"}))["path"] == str(path)
