import asyncio

import pytest

from fakes.art_clients import CHAT, EXPERIMENTAL, EXPERIMENTAL_OF_0_5_23, SERVERLESS_MODEL, ArtClient
from fakes.keys import KEY
from nat.errors import TrainingFailed

ART = ArtClient("0.5.18")
MANY = 20
"""Turns of the event loop after which a job of the fake has made its progress."""


@pytest.fixture
def client(client):
    client.headers["authorization"] = f"Bearer {KEY}"
    return client


async def ask(client, method, path, body=None, status=200, **params):
    answer = await client.request(method, f"/v1/preview{path}", json=body, params=params)
    assert answer.status_code == status, answer.text
    return answer.json()


async def created(client):
    return (await ask(client, "POST", "/models", SERVERLESS_MODEL))["id"]


def job(model_id, **changes):
    return {"model_id": model_id, "trajectory_groups": ART.groups(), "experimental_config": EXPERIMENTAL} | changes


async def all_events(client, job_id):
    """Follow the pages to the end of the job as the client does, by cursor and `has_more`."""
    events = []
    for _ in range(MANY):
        if events and events[-1]["type"] in ("training_ended", "training_failed"):
            break
        await asyncio.sleep(0)  # the job runs in this event loop, too
        cursor = {"after": events[-1]["id"]} if events else {}
        events += (await ask(client, "GET", f"/training-jobs/{job_id}/events", **cursor))["data"]
    return events


async def test_the_native_client_trains_and_deletes(client, models):
    """Create, sample, train, follow the events, list checkpoints and delete, answer by answer as 0.5.18 expects."""
    models.go.set()
    model = await ask(client, "POST", "/models", SERVERLESS_MODEL)
    assert (model["entity"], model["project"], model["name"], model["run_id"]) == ("local", "demo", "agent-001", None)
    assert model["base_model"] == SERVERLESS_MODEL["base_model"]
    answer = await client.post("/v1/chat/completions", json={**CHAT, "model": "scripted", "logprobs": True})
    assert answer.json()["choices"][0]["logprobs"]["content"][0]["token"].startswith("token_id:")
    job_id = (await ask(client, "POST", "/training-jobs", job(model["id"])))["id"]
    events = await all_events(client, job_id)
    assert [event["type"] for event in events] == [
        "training_started",
        "gradient_step",
        "gradient_step",
        "training_ended",
    ]
    assert events[0]["data"] == {"num_sequences": 2.0}
    assert events[1]["data"]["loss/train"] == 0.5
    assert all(isinstance(value, float) for value in events[2]["data"].values())
    path = f"/models/{model['id']}/checkpoints"
    newest = await ask(client, "GET", path, limit=1, order="desc")
    assert (newest["data"][0]["step"], newest["has_more"]) == (1, True)
    assert await ask(client, "DELETE", path, {"steps": [0, 7]}) == {"deleted_count": 1, "not_found_steps": [7]}
    assert [point["step"] for point in (await ask(client, "GET", path))["data"]] == [1]


async def test_options_of_newer_clients_are_ignored_and_logged_once(client, models, caplog):
    """0.5.23 sends more than 0.5.18; what repeats other options has no effect, and the log names it."""
    models.go.set()
    model_id = await created(client)
    for _ in range(2):
        body = job(model_id, experimental_config=EXPERIMENTAL_OF_0_5_23)
        job_id = (await ask(client, "POST", "/training-jobs", body))["id"]
        assert (await all_events(client, job_id))[-1]["type"] == "training_ended"
    (line,) = [record.getMessage() for record in caplog.records if "ignores" in record.getMessage()]
    names = "'logprob_calculation_chunk_size', 'loss_fn', 'normalize_advantages'"
    assert line.endswith(names)


async def test_captured_calls_of_chat_and_text_completions_are_trained(client, models):
    """The answers carry their tokens, requested or not, so what the client captures is enough."""
    models.go.set()
    model_id, groups = await created(client), []
    for path, asked in (("chat/completions", CHAT), ("completions", {"prompt": "the", "max_tokens": 4})):
        body = {"model": "scripted", **asked}
        answers = [(await client.post(f"/v1/{path}", json=body)).json() for _ in range(2)]
        api = path.replace("/", "_")
        own = "wandb-artifact:///local/demo/agent-001"
        calls = [[{"request": {**body, "model": own}, "response": answer}] for answer in answers]
        groups.append({"trajectories": [{"exchanges": {api: c}, "reward": n} for n, c in enumerate(calls)]})
    job_id = (await ask(client, "POST", "/training-jobs", job(model_id, trajectory_groups=groups)))["id"]
    events = await all_events(client, job_id)
    assert events[-1]["type"] == "training_ended"
    facts = events[1]["data"]
    assert (facts["data/step_num_answers"], facts["data/step_num_retokenized_answers"]) == (4, 0)


async def test_a_failed_job_has_its_reason(client, models):
    """The last event has the reason and the remedy."""
    models.error = TrainingFailed("the gradient is zero", hint="vary the rewards")
    models.go.set()
    job_id = (await ask(client, "POST", "/training-jobs", job(await created(client))))["id"]
    last = (await all_events(client, job_id))[-1]
    assert last["type"] == "training_failed"
    assert "the gradient is zero" in last["data"]["error_message"]
    assert "vary the rewards" in last["data"]["error_message"]


async def test_events_come_as_they_happen_and_can_be_read_again(client, models):
    """Pages begin after a cursor; reading a page again gives the same events."""
    job_id = (await ask(client, "POST", "/training-jobs", job(await created(client))))["id"]
    path = f"/training-jobs/{job_id}/events"
    page = {"data": []}
    for _ in range(MANY):
        await asyncio.sleep(0)
        page = await ask(client, "GET", path)
    assert [event["id"] for event in page["data"]] == ["1", "2", "3"]
    small = await ask(client, "GET", path, limit=1, after="1")
    assert ([event["id"] for event in small["data"]], small["has_more"]) == (["2"], True)
    assert await ask(client, "GET", path, after="3") == {"data": [], "has_more": False}
    models.go.set()
    assert (await all_events(client, job_id))[-1]["type"] == "training_ended"


async def test_a_model_is_found_again_by_its_name(client):
    """A model keeps its id, which another name does not have."""
    model_id = await created(client)
    assert await created(client) == model_id
    other = {**SERVERLESS_MODEL, "name": "agent-002"}
    assert (await ask(client, "POST", "/models", other))["id"] != model_id


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/models/model-0/checkpoints", None, 404),
        ("DELETE", "/models/model-0", None, 404),
        ("POST", "/training-jobs", job("model-0"), 404),
        ("POST", "/training-jobs", {}, 422),
        ("GET", "/training-jobs/job-9/events", None, 404),
        ("POST", "/models", {"name": "x"}, 422),
        ("POST", "/models", {**SERVERLESS_MODEL, "name": "a/b"}, 400),
    ],
)
async def test_unknown_ids_are_reported(client, method, path, body, status):
    """Unknown ids get a status and a detail."""
    assert (await ask(client, method, path, body, status))["detail"]


async def test_train_sft_says_how_to_imitate_here(client):
    """The client puts its examples at Weights & Biases first; the answer names what to use instead."""
    body = {"model_id": await created(client), "training_data_url": "wandb-artifact:///local/demo/data:v0"}
    told = await ask(client, "POST", "/sft-training-jobs", body, status=501)
    assert "Weights & Biases" in told["detail"]
    assert "dataset_traj_builder" in told["detail"]


async def test_a_model_can_be_deleted(client, models):
    """Deleting a model removes its id, too."""
    path = f"/models/{await created(client)}"
    assert await ask(client, "DELETE", path) is None
    assert models.checkpoints == {}
    await ask(client, "DELETE", path, status=404)


async def test_the_serverless_protocol_needs_the_key(client):
    """Requests without the key are refused; the protocol's client always sends one."""
    del client.headers["authorization"]
    await ask(client, "POST", "/models", SERVERLESS_MODEL, status=401)
