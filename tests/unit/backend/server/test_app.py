from pathlib import Path

import pytest
from fastapi import APIRouter

from fakes.keys import KEY
from nat.backend.forecast import Forecaster
from nat.backend.server.training import training_router
from nat.errors import BackendError, ModelBusy, ModelNotPrepared, ModelNotServed
from nat.wire.serving import ServeOptions

OPTIONS = ServeOptions(model=Path("tiny"))


async def test_the_model_is_listed_by_its_name_and_its_version(client):
    """The plain name always means the newest weights."""
    cards = (await client.get("/v1/models")).json()["data"]
    assert [card["id"] for card in cards] == ["tiny", "tiny@4"]
    assert cards[0]["max_model_len"] == 512


async def test_health_names_the_policy_version(client):
    """Health reports the policy version, so a monitor can see an update."""
    assert (await client.get("/health")).json() == {
        "status": "ok",
        "policy_version": "tiny@4",
        "device": "cpu",
        "dtype": "float32",
        "vocabulary": 266,
    }


async def test_unknown_paths_and_methods_answer_in_openais_shape(client):
    """Errors have OpenAI's `error` and also `detail`, which clients of FastAPI servers read."""
    for answer, status in ((await client.get("/v1/nowhere"), 404), (await client.get("/v1/completions"), 405)):
        assert answer.status_code == status
        assert answer.json()["error"]["message"].startswith("GET /v1/")
        assert answer.json()["detail"] == answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/v1/responses", "/v1/messages"])
async def test_an_api_that_only_the_gateway_has_is_named(client, path):
    """The agent's own client reads what to use instead, not that a page was not found."""
    answer = await client.post(path, json={"model": "tiny", "input": "hello"})
    assert answer.status_code == 404
    message = answer.json()["error"]["message"]
    assert path in message
    assert "chat completions" in message
    assert "gateway" in message


async def test_routers_of_protocols_have_the_same_guards(connect, worker):
    """Exceptions in routes of a protocol get an answer in OpenAI's shape."""
    router = APIRouter()

    @router.get("/v1/extra")
    async def extra():
        return {"extra": 1 // 0}

    async with connect(worker, extra_routers=[router]) as client:
        answer = await client.get("/v1/extra")
        assert answer.status_code == 500
        assert "ZeroDivisionError" in answer.json()["error"]["message"]
        assert (await client.get("/v1/extra", headers={"authorization": ""})).status_code == 401


@pytest.mark.parametrize(
    ("error", "status"), [(ModelBusy, 409), (ModelNotPrepared, 400), (ModelNotServed, 404), (BackendError, 500)]
)
async def test_an_error_of_the_backend_has_a_status_and_a_remedy(connect, worker, error, status):
    """The answer has the cause and the remedy in one line."""
    router = APIRouter()

    @router.get("/v1/extra")
    async def extra():
        raise error("it is so", hint="do this")

    async with connect(worker, extra_routers=[router]) as client:
        answer = await client.get("/v1/extra")
    assert (answer.status_code, answer.json()["detail"]) == (status, "it is so; do this")


@pytest.mark.parametrize("path", ["/health", "/v1/models", "/v1/chat/completions", "/nowhere"])
@pytest.mark.parametrize("key", [None, "Bearer sk-wrong", "sk-test", "Bearer "])
async def test_every_path_needs_the_key(connect, worker, path, key):
    """Without the bearer key, no path reveals anything, not even whether it exists."""
    async with connect(worker, headers={"authorization": key} if key else {}) as client:
        answer = await client.get(path)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize("user", ["art", ""])
async def test_the_key_may_be_the_password_of_basic_authentication(connect, worker, user):
    """Clients without bearer tokens may put the key into the URL, http://art:KEY@host, with any user name."""
    for password, status in ((KEY, 200), ("other", 401)):
        async with connect(worker, headers={}) as client:
            assert (await client.get("/health", auth=(user, password))).status_code == status
    async with connect(worker, headers={"authorization": "Basic ???"}) as client:
        assert (await client.get("/health")).status_code == 401


async def test_a_well_known_key_is_required_on_openai_routes_only(connect, worker):
    """ART's clients send no key on control routes; the OpenAI SDK always sends one."""
    async with connect(worker, headers={}, well_known_key=True) as client:
        assert [(await client.get(path)).status_code for path in ("/health", "/v1/models")] == [200, 401]


@pytest.mark.parametrize("path", ["/health", "/v1/models"])
async def test_web_pages_cannot_use_a_well_known_key(connect, worker, path):
    """Requests with an Origin header are refused if the key is well known."""
    for well_known_key, status in ((True, 403), (False, 200)):
        async with connect(worker, well_known_key=well_known_key) as client:
            answer = await client.get(path, headers={"origin": "https://evil.example"})
            assert answer.status_code == status
            assert ("evil.example" in answer.text) == well_known_key


async def test_a_backend_that_only_serves_checks_settings_of_training(connect, worker):
    """Settings are resolved without an output folder, for runs that are planned; jobs are refused."""
    async with connect(worker, extra_routers=[training_router(None, Forecaster(OPTIONS, worker))]) as client:
        resolved = await client.post("/v1/training/resolve", json={"algorithm": "rloo"})
        unknown = await client.post("/v1/training/resolve", json={"algorithm": "rlo"})
        refused = await client.get("/v1/training/jobs/1")
    assert (resolved.status_code, resolved.json()["algorithm"]) == (200, "rloo")
    assert "rloo" in unknown.text
    assert refused.status_code == 409


async def test_texts_are_turned_into_rows(connect, worker):
    """A backend gives the rows of each conversation, or why there are none."""
    talk = [{"role": "user", "content": "2+2?"}, {"role": "assistant", "content": "4"}]
    long = [{"role": "user", "content": "x" * 600}, talk[1]]
    body = {"conversations": [{"messages": messages, "answers": [1]} for messages in (talk, long)]}
    async with connect(worker, extra_routers=[training_router(None, Forecaster(OPTIONS, worker))]) as client:
        answer = await client.post("/v1/training/tokenize", json=body)
    first, second = answer.json()["conversations"]
    [span] = first["rows"][0]["spans"]
    assert (span["stop"] - span["start"], span["logprobs"]) == (len("4") + 1, None)
    assert second == {"rows": [], "problem": "it has 620 tokens; the context has 512"}
