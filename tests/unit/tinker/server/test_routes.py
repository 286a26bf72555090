"""What Tinker's clients send is trained, sampled and saved; what has no effect here is refused by name."""

import pytest
import torch

from fakes.keys import KEY
from fakes.tinker_client import RL, TOKENS, Client, datum, loss, sample


async def test_a_client_trains_saves_and_resumes_after_a_restart(clients):
    """A state resumes to the same losses and steps; sampler weights answer as before."""
    client = clients()
    model = await client.model()
    info = await client.ok("/get_info", {"model_id": model})
    assert (info["is_lora"], info["lora_rank"], info["model_data"]["model_name"]) == (True, 4, "owner/tiny")
    for _ in range(2):
        await client.train(model, [datum(TOKENS)], "cross_entropy")
        assert (await client.step(model, learning_rate=1e-2))["metrics"]["grad_norm"] > 0
    state = (await client.done("/save_weights", {"model_id": model, "path": "s"}))["path"]
    weights = (await client.done("/save_weights_for_sampler", {"model_id": model, "path": "w"}))["path"]
    assert state == f"tinker://{model}/weights/s"
    after = [await loss(client, model)]
    await client.train(model, [datum(TOKENS)], "cross_entropy")
    await client.step(model, learning_rate=1e-2)
    after.append(await loss(client, model))
    sampled = await sample(client, weights)
    again = clients()
    await again.model()
    load = {"session_id": again.session, "model_seq_id": 7, "path": state, "optimizer": True}
    resumed = (await again.done("/load_weights", load))["model_id"]
    assert resumed == f"{again.session}:train:7"
    found = [await loss(again, resumed)]
    await again.train(resumed, [datum(TOKENS)], "cross_entropy")
    await again.step(resumed, learning_rate=1e-2)
    found.append(await loss(again, resumed))
    assert found == after
    assert await sample(again, weights) == sampled
    info = await again.ok("/weights_info", {"tinker_path": state})
    assert (info["base_model"], info["lora_rank"]) == ("owner/tiny", 4)
    listed = (await again.http.get(f"/training_runs/{model}/checkpoints")).json()["checkpoints"]
    assert [each["checkpoint_id"] for each in listed] == ["sampler_weights/w", "weights/s"]


@pytest.mark.parametrize("temperature", [1.0, 0.5])
async def test_sampled_log_probabilities_are_those_of_forward(client, temperature):
    """At any temperature they are the model's own, so sampler and learner agree on the same tokens."""
    model = await client.model()
    await client.train(model, [datum(TOKENS)], "cross_entropy")
    await client.step(model, learning_rate=1e-2)
    path = (await client.done("/save_weights_for_sampler", {"model_id": model, "path": "w"}))["path"]
    found = await sample(client, path, temperature=temperature)
    assert found["prompt_logprobs"][0] is None
    for sequence in found["sequences"]:
        assert sequence["stop_reason"] == "length"
        data = [datum(TOKENS + sequence["tokens"])]
        [output] = (await client.train(model, data, "cross_entropy", forward=True))["loss_fn_outputs"]
        scored = output["logprobs"]["data"]
        assert scored[5:] == pytest.approx(sequence["logprobs"], abs=1e-4)
        assert scored[:5] == pytest.approx(found["prompt_logprobs"][1:], abs=1e-4)


async def test_snapshots_stay_as_they_were(client):
    """Weights without a name get a session at once, which later steps do not change; stop ids end a sequence."""
    model = await client.model()
    saved = await client.done("/save_weights_for_sampler", {"model_id": model, "sampling_session_seq_id": 0})
    prompt = {"chunks": [{"type": "encoded_text", "tokens": TOKENS}]}

    async def ask(number, **settings):
        body = {"sampling_session_id": saved["sampling_session_id"], "seq_id": number, "prompt": prompt}
        settings = {"max_tokens": 5, "temperature": 0.0, **settings}
        [sequence] = (await client.done("/asample", {**body, "sampling_params": settings}))["sequences"]
        return sequence

    before = await ask(0)
    for _ in range(3):
        await client.train(model, [datum(TOKENS)], "cross_entropy")
        await client.step(model, learning_rate=0.1)
    assert await ask(1) == before
    stopped = await ask(2, stop=[before["tokens"][1]])
    assert (stopped["tokens"], stopped["stop_reason"]) == (before["tokens"][:2], "stop")


async def test_steps_are_those_of_torch_s_adamw_with_clipping(start):
    """Settings of each step are used, and `grad_clip_norm` scales the gradient down."""
    models = start()
    client = Client(models)
    model = await client.model()
    parameters = models.model(model).adapter.loaded.trainable_parameters()
    copies = {name: torch.nn.Parameter(p.detach().clone()) for name, p in parameters.items()}
    settings = {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.9, "eps": 1e-6, "weight_decay": 0.1}
    adamw = torch.optim.AdamW(copies.values(), lr=0.01, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    for clip in (0.0, 0.5):
        await client.train(model, [datum(TOKENS)], "cross_entropy")
        for name, copy in copies.items():
            copy.grad = parameters[name].grad.clone()
        norm = torch.nn.utils.clip_grad_norm_(copies.values(), clip or float("inf"))
        adamw.step()
        metrics = (await client.step(model, **settings, grad_clip_norm=clip))["metrics"]
        assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-5)
        assert all(torch.allclose(parameters[name], copies[name], atol=1e-6) for name in copies)
    await client.http.aclose()


async def test_sampling_and_other_models_leave_a_gradient_alone(client):
    """Between `forward_backward` and `optim_step` clients sample, and other models are made, loaded and trained."""
    model = await client.model()
    await client.train(model, [datum(TOKENS)], "cross_entropy")
    alone = (await client.step(model, learning_rate=0.0))["metrics"]["grad_norm"]
    await client.train(model, [datum(TOKENS)], "cross_entropy")
    path = (await client.done("/save_weights_for_sampler", {"model_id": model, "path": "w"}))["path"]
    await sample(client, path)
    other = await client.model(1, seed=5)
    await client.train(other, [datum(TOKENS[::-1])], "cross_entropy")
    await client.step(other, learning_rate=1e-2)
    state = (await client.done("/save_weights", {"model_id": other, "path": "s"}))["path"]
    load = {"model_id": other, "seq_id": 9, "path": state, "optimizer": False}
    assert (await client.done("/load_weights", load))["model_id"] == other
    assert (await client.step(model, learning_rate=1e-2))["metrics"]["grad_norm"] == pytest.approx(alone, rel=1e-6)


async def test_a_request_that_is_sent_again_runs_once(client):
    """Clients repeat a request after a lost connection; the gradient counts once."""
    model = await client.model()
    for _ in range(3):
        await client.train(model, [datum(TOKENS)], "cross_entropy", seq=1)
    once = (await client.step(model))["metrics"]["grad_norm"]
    await client.train(model, [datum(TOKENS)], "cross_entropy", seq=3)
    again = (await client.step(model, learning_rate=0.0))["metrics"]["grad_norm"]
    assert once == pytest.approx(again, rel=0.05)


async def test_what_has_no_effect_is_refused_by_its_name(client):
    """Losses, settings, inputs, optimisers and sampling options that this server does not have."""
    model = await client.model()
    session, prompt = client.session, {"chunks": [{"tokens": [5]}]}
    batch = {"model_id": model, "forward_backward_input": {"data": [datum(TOKENS)], "loss_fn": "stable_reinforce"}}
    new = {"session_id": session, "model_seq_id": 1, "base_model": "owner/tiny"}
    for path, body, finding in (
        ("/forward_backward", batch, "'stable_reinforce' is not supported"),
        ("/optim_step", {"model_id": model, "adam_params": {"amsgrad": True}}, "adam_params.amsgrad"),
        ("/optim_step", {"model_id": model, "optimizer_params": {"type": "dimuon"}}, "optimizer_params"),
        ("/create_model", {**new, "optimizer_config": {"type": "dimuon"}}, "optimizer_config.type"),
        ("/create_model", {**new, "lora_config": {"rank": 4, "train_attn": False}}, "lora_config.train_attn"),
        ("/create_model", {**new, "base_model": "owner/other"}, "'owner/other' is not served"),
        ("/asample", {"base_model": "tiny", "prompt": prompt, "sampling_params": {"top_k": 5}}, "top_k"),
        ("/asample", {"base_model": "tiny", "prompt": prompt, "topk_prompt_logprobs": 2}, "topk_prompt_logprobs"),
        ("/asample", {"base_model": "tiny", "prompt": {}}, "prompt.chunks"),
        ("/save_weights_for_sampler", {"model_id": model, "kind": "inflight"}, "kind"),
        ("/save_weights", {"model_id": model, "path": "../x"}, "path"),
        ("/load_weights", {"path": "tinker://../weights/x", "optimizer": True, "model_id": model}, "is no path"),
        ("/load_weights", {"path": f"tinker://{model}/weights/x", "optimizer": True, "model_id": model}, "not saved"),
        ("/get_info", {"model_id": "other"}, "not in memory"),
        ("/create_sampling_session", {"session_id": session, "sampling_session_seq_id": 0}, "is not served"),
    ):
        answer = await client.post(path, body)
        assert 400 <= answer.status_code < 500, (path, answer.text)
        assert finding in answer.json()["error"]["message"], (path, answer.text)
    failed = await client.step(model)
    assert failed == {"error": "optim_step without a gradient; call forward_backward first", "category": "user"}
    assert (await client.post("/retrieve_future", {"request_id": "lost"})).status_code == 410
    assert (await client.http.get("/training_runs/..:train:../checkpoints")).status_code in {400, 404}


async def test_a_loss_without_a_number_is_refused_and_leaves_the_gradient_alone(client):
    """Finite values may overflow; the next step is that of the batches before."""
    norms, model = [], await client.model()
    for huge in ({}, {"advantages": [1e308] * 5}, {"logprobs": [-1e30] * 5}):
        await client.train(model, [datum(TOKENS)], "cross_entropy")
        if huge:
            failed = await client.train(model, [datum(TOKENS, **RL | huge)], "dro", config={"beta": 0.1})
            assert failed["category"] == "user"
            assert "the loss of the batch is" in failed["error"]
        norms.append((await client.step(model, learning_rate=0.0))["metrics"]["grad_norm"])
    assert norms == [norms[0]] * 3


async def test_the_key_is_needed(client):
    """In X-API-Key, as the official clients send it."""
    client.http.headers["X-API-Key"] = KEY + "x"
    answer = await client.post("/create_session", {})
    assert answer.status_code == 401
    assert "X-API-Key" in answer.text
