import json

import pytest

from fakes.art_clients import CHAT, FULL_NAT, MINIMAL_NAT, VERSIONS, ArtClient, choice
from fakes.keys import KEY
from nat.art.server.routes import inference_url

ART = ArtClient()
CONTROL = {
    "/register": ART.model(),
    "/_get_step": ART.model(),
    "/_prepare_backend_for_training": ART.prepare(),
    "/_train_model": ART.train(),
    "/_delete_checkpoint_files": ART.delete(0),
}


async def post(client, path, body=None, status=200, **params):
    answer = await client.post(path, json=body, params=params)
    assert answer.status_code == status, answer.text
    return answer.json() if answer.headers.get("content-type") == "application/json" else answer.text


async def prepared(client, art=ART):
    await post(client, "/register", art.model(registered=False))
    return await post(client, "/_prepare_backend_for_training", art.prepare())


def lines_of(text):
    assert text.endswith("\n")
    return [json.loads(line) for line in text.removesuffix("\n").split("\n")]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_client_of_each_version_trains_and_closes(client, models, version):
    """Each client version's calls, from register to close, get answers in the expected shape."""
    art = ArtClient(version)
    models.go.set()
    assert await post(client, "/register", art.model(registered=False)) is None
    url, key = await post(client, "/_prepare_backend_for_training", art.prepare())
    assert (url, key) == ("http://gpu-box:8000/v1", KEY)
    told = await client.post("/_prepare_backend_for_training", json=art.prepare())
    assert json.loads(told.headers["x-nat-serving"])["base_model"] == "tiny"
    answer = await client.post(
        "/v1/chat/completions", json={**CHAT, "model": "scripted"}, headers={"authorization": f"Bearer {key}"}
    )
    assert answer.json()["choices"][0]["logprobs"]["content"][0]["token"].startswith("token_id:")
    assert await post(client, "/_get_step", art.model()) == 0
    lines = lines_of(await post(client, "/_train_model", art.train()))
    assert [(line["num_gradient_steps"], line["data/step_num_gradient_steps"]) for line in lines] == [(2.0, 2.0)] * 2
    assert [(line["loss"], line["loss/train"]) for line in lines] == [(0.5, 0.5), (0.25, 0.25)]
    assert await post(client, "/_get_step", art.model()) == 1
    assert await post(client, "/_delete_checkpoint_files", art.delete(1)) is None
    assert await post(client, "/close") is None
    assert models.checkpoints["agent-001"] == [1]


@pytest.mark.parametrize("internal", [MINIMAL_NAT, FULL_NAT, None, {}])
async def test_nulls_count_as_absent(client, models, internal):
    """The NAT plug-in sends nulls for omitted blocks, and `config: null` to prepare."""
    art = ArtClient(internal=internal)
    models.go.set()
    await post(client, "/register", art.model())
    await post(client, "/_prepare_backend_for_training", art.prepare(config=None))
    assert len(lines_of(await post(client, "/_train_model", art.train()))) == 2


@pytest.mark.parametrize("path", ["/healthcheck", "/health", "/health/"])
async def test_health(client, path):
    """Both spellings of the health path answer: the guide's with a slash, ART's without."""
    answer = await client.get(path)
    assert (answer.status_code, answer.json()["status"]) == (200, "ok")


@pytest.mark.parametrize("path", CONTROL)
async def test_an_incomplete_body_is_refused(client, models, path):
    """Invalid JSON, a missing name or a missing project is a 422 with the place, before anything happens."""
    body = CONTROL[path]
    model = body.get("model", body)
    for missing in ("name", "project"):
        less = {key: value for key, value in model.items() if key != missing}
        told = await post(client, path, {**body, "model": less} if "model" in body else less, status=422)
        assert missing in told["detail"]
    answer = await client.post(path, content=b"{")
    assert answer.status_code == 422
    assert (models.registered, models.calls) == ([], [])


@pytest.mark.parametrize("path", CONTROL)
async def test_names_that_cannot_be_folders_are_refused(client, path):
    """Names become paths, so the error says which names are allowed."""
    evil = ArtClient(name="../x")
    body = CONTROL[path]
    body = {**body, "model": evil.model()} if "model" in body else evil.model()
    assert "cannot name a folder" in (await post(client, path, body, status=400))["detail"]


@pytest.mark.parametrize(
    ("path", "place", "value"),
    [
        ("/_prepare_backend_for_training", ("config", "server_args"), "x"),
        ("/_train_model", ("config", "grad_accumulation_sequences"), 2**31),
        ("/_train_model", ("dev_config", "packed_sequence_length"), 10**400),
    ],
)
async def test_a_value_that_no_server_can_use_names_its_field(client, path, place, value):
    """A wrong type, or a number whose products overflow, is an error of the client."""
    part, field = place
    body = {**CONTROL[path], part: {**CONTROL[path].get(part, {}), field: value}}
    await post(client, "/_prepare_backend_for_training", ART.prepare())
    assert f"{part}.{field}" in (await post(client, path, body, status=422))["error"]["message"]


async def test_the_metrics_stream_has_no_content_type_and_names_its_job(client, models):
    """As on ART's server there is no Content-Type; an extra header names the job, which has the failure's reason."""
    models.go.set()
    await prepared(client)
    answer = await client.post("/_train_model", json=ART.train())
    assert "content-type" not in answer.headers
    job = (await client.get(f"/jobs/{answer.headers['x-job-id']}")).json()
    assert (job["id"], job["status"]) == ("job-0", "completed")
    assert (await client.get("/jobs/job-9")).status_code == 404


async def test_untrainable_calls_are_refused_before_the_first_byte(client, models):
    """Unprepared models, missing log probabilities and unsupported options are errors."""
    assert "prepare" in (await post(client, "/_train_model", ART.train(), status=400))["detail"]
    await prepared(client)
    plain = ART.groups()
    for trajectory in plain[0]["trajectories"]:
        trajectory["messages_and_choices"][1]["logprobs"] = None
    told = await post(client, "/_train_model", ART.train(trajectory_groups=plain), status=400)
    assert "log probabilities" in told["detail"]
    foreign = [{"trajectories": [ART.trajectory(r, choice(10**6)) for r in (0.0, 1.0)], "exceptions": []}]
    told = await post(client, "/_train_model", ART.train(trajectory_groups=foreign), status=400)
    assert "1000000" in told["detail"]
    dev = {"kl_ref_adapter_path": "/some/adapter"}
    assert (
        "kl_ref_adapter_path" in (await post(client, "/_train_model", ART.train(dev_config=dev), status=400))["detail"]
    )
    assert models.calls == []


async def test_prepare_answers_with_the_servers_port_and_key(client, caplog):
    """Port and key are those of the server's start; the log reports that the client requested others."""
    config = {"server_args": {"port": 9000, "api_key": "sk-mine"}}
    assert await post(client, "/_prepare_backend_for_training", ART.prepare(config)) == ["http://gpu-box:8000/v1", KEY]
    assert [("port" in text, "api_key" in text) for text in caplog.messages] == [(True, False), (False, True)]
    assert "sk-mine" not in caplog.text


@pytest.mark.parametrize(
    ("header", "url"),
    [
        ("gpu-box:7623", "http://gpu-box:8000/v1"),
        ("gpu-box", "http://gpu-box:8000/v1"),
        ("[::1]:7623", "http://[::1]:8000/v1"),
        ("", "http://127.0.0.1:8000/v1"),
        ("evil/path", "http://127.0.0.1:8000/v1"),
        ("a@b:1", "http://127.0.0.1:8000/v1"),
    ],
)
def test_inference_urls_have_the_host_of_the_request(header, url):
    """Tunnels and network names work for both ports; an invalid host name is not repeated."""
    assert inference_url(header, "127.0.0.1", 8000) == url
    assert inference_url("", "::1", 8000) == "http://[::1]:8000/v1"


async def test_each_training_call_has_a_log_line(client, models, caplog):
    """The operator sees whose rollouts came, and how good they were."""
    caplog.set_level("INFO", logger="nat.art.server.submissions")
    models.go.set()
    await prepared(client)
    await post(client, "/_train_model", ART.train(1.0, 0.0))
    assert "demo/agent-001, step 0: 2 rollouts in 1 groups, mean reward 0.5000, 0 raised" in caplog.messages


@pytest.mark.parametrize(
    ("fields", "untrainable"), [({}, 0), ({"temperature": 0.7}, 0), ({"top_p": 0.9}, 1), ({"temperature": 0}, 1)]
)
async def test_an_answer_is_trained_with_its_sampling(client, models, fields, untrainable):
    """The client sends back the answer without its request, so the server remembers the sampling."""
    models.go.set()
    await prepared(client)
    asked = {**CHAT, "model": "scripted", **fields}
    answer = await client.post("/v1/chat/completions", json=asked, headers={"authorization": f"Bearer {KEY}"})
    sampled = ART.trajectory(1.0, answer.json()["choices"][0])
    groups = [{**ART.groups()[0], "trajectories": [sampled, *ART.groups(0.0, 0.5)[0]["trajectories"]]}]
    lines = lines_of(await post(client, "/_train_model", ART.train(trajectory_groups=groups)))
    assert {line["data/step_num_untrainable_answers"] for line in lines} == {untrainable}
